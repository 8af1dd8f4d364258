"""What is reachable inside, and where it leads; nothing is translated between dialects."""

import json
import re
from dataclasses import dataclass
from typing import Any

CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai", "openai-responses", "anthropic", "gemini"


@dataclass(frozen=True)
class Route:
    """A path inside, and the path below the provider's base URL."""

    dialect: str
    upstream: str
    is_billed: bool = True  # False: answered without a model
    model: str | None = None  # asked for, where the path says it instead of the body


ROUTES = {
    "/openai/v1/chat/completions": Route(CHAT, "/chat/completions"),
    "/openai/v1/responses": Route(RESPONSES, "/responses"),
    "/anthropic/v1/messages": Route(ANTHROPIC, "/v1/messages"),
    "/anthropic/v1/messages/count_tokens": Route(
        ANTHROPIC, "/v1/messages/count_tokens", is_billed=False
    ),
}

MODELS = {"/openai/v1/models", "/anthropic/v1/models"}

_WORDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
_STATUSES |= {404: "NOT_FOUND", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED"}
_WORDS |= {404: "not_found_error", 413: "request_too_large", 502: "api_error"}


_GEMINI = re.compile(
    r"/gemini/v1beta/models/([\w.-]+):(generateContent|streamGenerateContent|countTokens)"
)


def route_of(path: str, query: str, model: str) -> Route | None:
    """Where a path leads for a session of ``model``; of a query only Gemini's ``alt=sse`` stays."""
    found = _GEMINI.fullmatch(path)
    if found is None:
        return ROUTES.get(path)
    asked, verb = found.groups()
    alt = "?alt=sse" if "alt=sse" in query.split("&") else ""
    upstream = f"/v1beta/models/{model}:{verb}{alt}"
    return Route(GEMINI, upstream, is_billed=verb != "countTokens", model=asked)


def dialect_of(path: str) -> str:
    """By the first part of a path; errors of unknown paths are written as OpenAI's."""
    if path.startswith("/gemini/"):
        return GEMINI
    return ANTHROPIC if path.startswith("/anthropic/") else CHAT


def error_body(dialect: str, status: int, message: str, word: str = "") -> bytes:
    """An error as the dialect's clients read it."""
    kind = word or _WORDS.get(status, "api_error")
    if dialect == GEMINI:
        said = {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}
        return json.dumps({"error": said}).encode()
    error: dict[str, Any] = {"type": kind, "message": message}
    if dialect == ANTHROPIC:
        return json.dumps({"type": "error", "error": error}).encode()
    return json.dumps({"error": {**error, "code": kind, "param": None}}).encode()
