"""From what a provider or its SDK says to the error types of `models.errors`.

Status codes and structured error bodies decide. Providers do not agree on a code for a
conversation that is too long, so for that one case their documented phrases are known here.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.models.errors import (
    BadKey,
    BadRequest,
    ContextOverflow,
    ModelError,
    OutOfQuota,
    Overloaded,
    RateLimited,
    ServerError,
    Unreachable,
)
from orchestrator.models.retry import retry_after_s

if TYPE_CHECKING:
    import anthropic
    import httpx2
    import openai

_LONGEST_MESSAGE = 500

_TYPES: Mapping[str, type[ModelError]] = {
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "overloaded_error": Overloaded,
    "insufficient_quota": OutOfQuota,
    "1113": OutOfQuota,  # Z.ai: the account's balance does not cover the call
    "billing_error": OutOfQuota,
    "authentication_error": BadKey,
    "permission_error": BadKey,
    "context_length_exceeded": ContextOverflow,
    "request_too_large": ContextOverflow,
    "invalid_request_error": BadRequest,
    "not_found_error": BadRequest,
}
"""Error types and codes of the two protocols (OpenAI: `code`, Anthropic: `error.type`)."""

_STATUSES: Mapping[int, type[ModelError]] = {
    401: BadKey,
    402: OutOfQuota,
    403: BadKey,
    408: ServerError,
    409: ServerError,
    413: ContextOverflow,
    425: ServerError,
    429: RateLimited,
    529: Overloaded,
}

_MORE_TELLING = (ContextOverflow, OutOfQuota, Overloaded)
"""Types that a body may name under a status that says less (429 for an empty account)."""

_TOO_LONG = (
    "prompt is too long",  # Anthropic
    "maximum context length",  # OpenAI, vLLM, OpenRouter
    "context window",
    "exceeds the available context size",  # llama.cpp
    "input length and `max_tokens` exceed context limit",  # Anthropic
)


def from_sdk(error: "openai.APIError | anthropic.APIError") -> ModelError:
    """The error of a request that got no stream."""
    import anthropic  # noqa: PLC0415 - start-up time
    import openai  # noqa: PLC0415

    if isinstance(error, openai.APIStatusError | anthropic.APIStatusError):
        wait_s = retry_after_s(error.response.headers)
        return from_status(error.status_code, error.body, retry_after=wait_s)
    return Unreachable(_short(f"{error.message} {error.__cause__ or ''}".strip()))


def from_response(response: "httpx2.Response") -> ModelError:
    """The error of a response with a status of 400 or above; its body is read here."""
    import httpx2  # noqa: PLC0415 - start-up time

    try:
        data = response.read()
    except httpx2.TransportError as error:
        return Unreachable(_short(f"HTTP {response.status_code}, then nothing: {error}"))
    try:
        body = json.loads(data)
    except ValueError:
        body = data.decode("utf-8", "replace")
    wait_s = retry_after_s(response.headers)
    return from_status(response.status_code, body, retry_after=wait_s)


def from_status(status: int, body: Any, *, retry_after: float | None = None) -> ModelError:
    """The error of an HTTP status and its (JSON or text) body."""
    message, words = _reading(body)
    kind = next((_TYPES[word] for word in words if word in _TYPES), None)
    by_status = _STATUSES.get(status) or (ServerError if status >= 500 else BadRequest)
    if kind is None or not issubclass(kind, (by_status, *_MORE_TELLING)):
        kind = by_status
    if kind is BadRequest and any(phrase in message.lower() for phrase in _TOO_LONG):
        kind = ContextOverflow
    return kind(_short(f"HTTP {status}: {message}"), retry_after_s=retry_after)


def in_stream(body: Any) -> ModelError:
    """The error that a provider sends inside a stream that it had begun with status 200."""
    message, words = _reading(body)
    for word in words:
        if word in _TYPES:
            return _TYPES[word](_short(message))
        if word.isdigit() and 400 <= int(word) < 600:
            return from_status(int(word), body)
    return ServerError(_short(f"the provider broke off: {message}"))


def _reading(body: Any) -> tuple[str, list[str]]:
    """An error body's message and its machine-readable words."""
    if isinstance(body, Mapping):
        error = body.get("error", body)
        if isinstance(error, Mapping):
            words = [str(error[key]) for key in ("code", "type") if error.get(key) is not None]
            return str(error.get("message") or dict(error)), words
        return str(error), []
    return str(body or "no message"), []


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."
