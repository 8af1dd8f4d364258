"""Single values of pi's session entries in our terms."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from transcripts.events import Reply, ToolCall
from transcripts.records import Usage


def tool_call(block: dict[str, Any]) -> ToolCall:
    """A call with its arguments as JSON text."""
    arguments = block.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=str(block.get("id", "")), name=str(block.get("name", "")), arguments=text)


def blocks(content: object) -> list[dict[str, Any]]:
    """The content blocks of a message."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, dict)]  # type: ignore[attr-defined]


def content_text(content: object) -> str:
    """The text of a message; a picture is named, its data stays in ``raw``."""
    parts = []
    for block in blocks(content):
        if block.get("type") == "text":
            parts.append(str(block.get("text", "")))
        elif block.get("type") == "image":
            parts.append(f"[image {block.get('mimeType', '')}]")
    return "\n".join(parts)


def usage_of(usage: dict[str, Any]) -> tuple[Usage, float | None]:
    """Tokens, and the cost in dollars where pi had a price."""
    counted = Usage(
        input_tokens=int(usage.get("input") or 0),
        output_tokens=int(usage.get("output") or 0),
        cache_read_tokens=int(usage.get("cacheRead") or 0),
        cache_write_5m_tokens=int(usage.get("cacheWrite") or 0),
    )
    total = (usage.get("cost") or {}).get("total")
    return counted, float(total) if total else None  # 0 means that pi has no price for it


def all_priced(answers: list[Reply]) -> bool:
    """True when every answer that used tokens has a cost."""
    spent = [a for a in answers if a.usage != Usage()]
    return bool(spent) and all(answer.cost_usd is not None for answer in spent)


def time_of(value: object) -> datetime | None:
    """An ISO time, or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        return None
    return None


def text_or_none(value: object) -> str | None:
    """Any value as text."""
    return None if value is None else str(value)
