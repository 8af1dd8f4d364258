"""Why a model call was given up. `orchestrator.faults` turns these into outcomes, by type."""


class ModelError(Exception):
    """Base; ``kind`` is the word used in retry events and outcomes.

    ``retry_after_s`` is how long the provider asks to wait, where it says so.
    """

    kind = "model_error"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimited(ModelError):
    """429 after all retries."""

    kind = "rate_limit"


class OutOfQuota(RateLimited):
    """The account has no money or quota left: waiting does not help, so never retried."""

    kind = "quota"


class ServerError(ModelError):
    """5xx after all retries."""

    kind = "server_error"


class Overloaded(ServerError):
    """The provider says that it has too much to do (529), after all retries."""

    kind = "overloaded"


class Unreachable(ModelError):
    """No connection, or a timeout before anything came."""

    kind = "unreachable"


class DroppedStream(ModelError):
    """The stream ended before the answer was whole."""

    kind = "dropped_stream"


class MalformedReply(ModelError):
    """Chunks that are not what the protocol says."""

    kind = "malformed"


class BadKey(ModelError):
    """401 or 403: the key is missing, wrong or not allowed; never retried."""

    kind = "bad_key"


class BadRequest(ModelError):
    """The provider refuses the request itself; never retried."""

    kind = "bad_request"


class ContextOverflow(BadRequest):
    """The conversation no longer fits."""

    kind = "context_overflow"


class Interrupted(ModelError):
    """The session is stopping: a wait before a retry was cut short."""

    kind = "interrupted"
