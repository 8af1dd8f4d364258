"""What an answer says about itself: usage and served model, streamed or not."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.gateway.routes import ANTHROPIC, GEMINI, RESPONSES
from orchestrator.models.wire_answers import USAGE_OF, gemini_usage
from transcripts.records import Usage


@dataclass(frozen=True)
class Told:
    """``usage`` and ``model`` as far as they were told; ``whole`` when the answer had its end."""

    usage: Usage | None
    model: str | None
    whole: bool


def told(dialect: str, content_type: str, body: bytes) -> Told:
    """Read a whole answer of status 200. Never raises: what cannot be read told nothing."""
    try:
        if "event-stream" in content_type:
            return _streamed(dialect, body)
        value = json.loads(body)
        if dialect == GEMINI:
            return _gemini(value if isinstance(value, list) else [value])
        return Told(_usage(dialect, value.get("usage")), value.get("model"), whole=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Told(None, None, whole=False)


def _streamed(dialect: str, body: bytes) -> Told:
    if dialect == GEMINI:
        return _gemini([json.loads(data) for data in _data(body)])
    usage: dict[str, Any] = {}
    model, whole = None, False
    for data in _data(body):
        if data == b"[DONE]":
            whole = True
            continue
        event = json.loads(data)
        if dialect == ANTHROPIC:
            message = event.get("message") or {}
            found, model = message.get("usage") or event.get("usage"), model or message.get("model")
            usage |= {k: v for k, v in (found or {}).items() if v is not None}
            whole = whole or event.get("type") == "message_stop"
        elif dialect == RESPONSES:
            response = event.get("response") or {}
            usage, model = response.get("usage") or usage, response.get("model") or model
            whole = whole or event.get("type") in ("response.completed", "response.incomplete")
        else:
            usage, model = event.get("usage") or usage, event.get("model") or model
    return Told(_usage(dialect, usage), model, whole)


def _gemini(parts: list[dict[str, Any]]) -> Told:
    """The last usage told stands for all; a finish, a block or a count of tokens is the end."""
    usage: dict[str, Any] = {}
    model, whole = None, False
    for part in parts:
        usage, model = part.get("usageMetadata") or usage, part.get("modelVersion") or model
        finished = any(each.get("finishReason") for each in part.get("candidates") or ())
        blocked = bool((part.get("promptFeedback") or {}).get("blockReason"))
        whole = whole or finished or blocked or "totalTokens" in part
    if not usage:
        return Told(None, model, whole)
    return Told(gemini_usage(usage), model, whole)


def _data(body: bytes) -> list[bytes]:
    """The data of each event; events of several data lines are joined, as the standard says."""
    events = re.split(rb"\r?\n\r?\n", body)
    joined = (
        b"\n".join(
            line[5:].strip() for line in re.split(rb"\r?\n", event) if line.startswith(b"data:")
        )
        for event in events
    )
    return [data for data in joined if data]


def _usage(dialect: str, usage: Mapping[str, Any] | None) -> Usage | None:
    if not usage:
        return None
    return USAGE_OF[dialect](usage)
