"""What is reachable inside, and where it leads; nothing is translated between dialects."""

import json
from dataclasses import dataclass
from typing import Any

CHAT, RESPONSES, ANTHROPIC = "openai", "openai-responses", "anthropic"


@dataclass(frozen=True)
class Route:
    """A path inside, and the path below the provider's base URL."""

    dialect: str
    upstream: str
    is_billed: bool = True  # False: answered without a model


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
_WORDS |= {404: "not_found_error", 413: "request_too_large", 502: "api_error"}


def dialect_of(path: str) -> str:
    """By the first part of a path; errors of unknown paths are written as OpenAI's."""
    return ANTHROPIC if path.startswith("/anthropic/") else CHAT


def error_body(dialect: str, status: int, message: str, word: str = "") -> bytes:
    """An error as the dialect's clients read it."""
    kind = word or _WORDS.get(status, "api_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if dialect == ANTHROPIC:
        return json.dumps({"type": "error", "error": error}).encode()
    return json.dumps({"error": {**error, "code": kind, "param": None}}).encode()
