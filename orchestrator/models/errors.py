"""Why a model call was given up. `orchestrator.faults` turns these into outcomes, by type."""


class ModelError(Exception):
    """Base; ``kind`` is the word used in retry events and outcomes."""

    kind = "model_error"


class RateLimited(ModelError):
    """429 after all retries."""

    kind = "rate_limit"


class ServerError(ModelError):
    """5xx or overloaded after all retries."""

    kind = "server_error"


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
