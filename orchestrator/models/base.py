"""What a model client is: one neutral conversation in, one whole reply out.

Clients own the protocol (OpenAI chat completions, Anthropic messages) and nothing else: retries
are `models.retry`, what to say is the agent's. Reasoning items are carried back exactly as the
provider sent them, through ``ModelReply.raw``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from transcripts.events import ToolCall
from transcripts.records import Usage

SUMMARY_CUE = "Write a summary of this session"
"""The words by which a harness asks for a summary; the built-in models know them."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as offered to the model; ``parameters`` is JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class UserTurn:
    """Words of the user or the harness."""

    text: str


@dataclass(frozen=True)
class ModelReply:
    """A whole answer."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    stop_reason: str  # "stop", "tool_calls", "length", "refusal", "other:<raw>"
    usage: Usage
    served_model: str | None
    latency_s: float
    reasoning: str = ""
    raw: Any = None  # assembled provider message, JSON, sent back as it was


@dataclass(frozen=True)
class ToolOutcome:
    """The answer to one tool call."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class ToolTurn:
    """The answers to all tool calls of one reply, in its order."""

    results: tuple[ToolOutcome, ...]


Turn = UserTurn | ModelReply | ToolTurn


@dataclass
class Conversation:
    """A system prompt and the turns so far. Append-only but for compaction."""

    system: str
    turns: list[Turn] = field(default_factory=list)


@dataclass(frozen=True)
class RetryNotice:
    """One failed try that will be repeated; the session logs it."""

    try_number: int
    error: str
    wait_s: float
    message: str


class ModelClient(Protocol):
    """A model behind a protocol. Raises orchestrator.models.errors types when it gives up."""

    def reply(
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        on_retry: Callable[[RetryNotice], None],
    ) -> ModelReply:
        """Ask once, with retries by policy; streaming underneath."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...
