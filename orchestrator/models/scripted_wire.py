"""The protocols from the server's side: what was asked, and how an answer is written.

Usage is computed from text lengths, four characters a token; what came before the newest messages
counts as cached once there is a history.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.models.stories import Say

CHARS_PER_TOKEN = 4
_PIECE = 400
"""Characters of text or arguments in one chunk."""
_STEP = re.compile(r"_s(\d+)_\d+$")


@dataclass(frozen=True)
class Asked:
    """A request, as far as stories need it."""

    user_text: str  # all that the user said
    step: int
    tools: tuple[Mapping[str, Any], ...]  # name and parameters of each
    prompt_tokens: int
    fresh_tokens: int  # of the messages since the last answer
    carried_reasoning: tuple[tuple[int, Any], ...]  # (step, reasoning items of that answer)


class Wire(Protocol):
    """One protocol."""

    def read(self, request: Mapping[str, Any], size: int) -> Asked:
        """What a request of ``size`` bytes asks."""
        ...

    def reasoning(self, say: Say, step: int) -> Any:
        """The reasoning items of an answer as they must come back."""
        ...

    def message(self, say: Say, asked: Asked, request: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer, not streamed."""
        ...

    def stream(self, message: Mapping[str, Any]) -> list[bytes]:
        """The answer's events, the terminator last."""
        ...

    def error(self, status: int, text: str) -> dict[str, Any]:
        """The body of an error."""
        ...


def blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message's content as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the user said: harnesses say much of their own before the task, also in turns."""
    return "\n".join(
        block["text"]
        for message in messages
        if message["role"] == "user"
        for block in blocks(message)
        if "text" in block
    )


def steps_of(ids: Sequence[Sequence[str]]) -> list[int]:
    """The step of each answer: its calls' ids say it, so that a shortened history does not
    send a story back; an answer without calls follows the one before.
    """
    steps: list[int] = []
    for answer in ids:
        known = [int(found[1]) for found in map(_STEP.search, answer) if found]
        steps.append(known[0] if known else (steps[-1] + 1 if steps else 0))
    return steps


def fresh_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of the messages since the last answer."""
    newest = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        newest += len(json.dumps(message["content"]))
    return newest // CHARS_PER_TOKEN


def output_tokens(say: Say) -> tuple[int, int]:
    """Tokens of the whole answer, and of its reasoning."""
    thought = -(-len(say.reasoning) // CHARS_PER_TOKEN)
    said = len(say.text) + sum(len(name) + len(arguments) for name, arguments in say.calls)
    return thought - (-said // CHARS_PER_TOKEN), thought


def signature(say: Say, step: int) -> str:
    """What an answer's reasoning is signed with."""
    return base64.b64encode(hashlib.sha256(f"{step}:{say.reasoning}".encode()).digest()).decode()


def pieces(text: str) -> Iterator[str]:
    """``text`` in chunks."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def data_event(value: Mapping[str, Any]) -> bytes:
    """One event without a name."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def named_event(value: Mapping[str, Any]) -> bytes:
    """One event that is named by its type."""
    return f"event: {value['type']}\n".encode() + data_event(value)
