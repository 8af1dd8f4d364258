"""The events of a transcript, one JSON object a line.

A step logs its intent before and its result after: ``request`` before ``reply``, ``tool_call``
before ``tool_result``. An intent without a result after a crash is an interrupted step.

Envelope of every event: ``n`` (0-based number in the transcript), ``at`` (UTC, microseconds),
``offset_s`` (monotonic seconds since this process opened the session; restarts at a resume).
Provider extras are kept beside the normalised form in ``raw``: nothing sent by a model or a
provider is dropped.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter

from transcripts.records import FileDigest, Outcome, Record, Usage


class ToolCall(Record):
    """A tool call as the model wrote it. ``arguments`` is its JSON text, valid or not."""

    id: str
    name: str
    arguments: str


class BlobRef(Record):
    """Content above 64 KiB: the event keeps head and tail in its text, the blob keeps all."""

    sha256: str
    size_bytes: int


Purpose = Literal["step", "summary", "side"]
"""What a model call is for: the next step, a summary of the past (see `Compaction`), or something
that a harness asks beside its session (a title, a topic): a call that offers no tools."""


class AnyEvent(Record):
    """The envelope; every event extends it."""

    n: int
    at: datetime
    offset_s: float


class SessionStart(AnyEvent):
    """Opens a transcript, and again each time a session is resumed."""

    kind: Literal["session_start"] = "session_start"
    attempt_id: str
    resumed: bool = False
    owner: str  # which orchestrator: host digest, pid, start time
    notes: tuple[str, ...] = ()


class Prompt(AnyEvent):
    """What the session was told first: the system prompt or the task."""

    kind: Literal["prompt"] = "prompt"
    role: Literal["system", "user"]
    text: str
    raw: JsonValue = None


class Request(AnyEvent):
    """Intent of one paid model call."""

    kind: Literal["request"] = "request"
    step: int
    messages: int  # how many the conversation holds
    protocol: str
    purpose: Purpose = "step"


class Reply(AnyEvent):
    """A whole answer of the model."""

    kind: Literal["reply"] = "reply"
    step: int
    purpose: Purpose = "step"
    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str  # "stop", "tool_calls", "length", "refusal", "error", "other:<raw>"
    usage: Usage = Usage()
    cost_usd: float | None = None
    served_model: str | None = None
    latency_s: float = 0.0
    raw: JsonValue = None  # the assembled provider message, to be carried back as it was


class ToolCallStarted(AnyEvent):
    """Intent of one tool call."""

    kind: Literal["tool_call"] = "tool_call"
    step: int
    call: ToolCall


class ToolResult(AnyEvent):
    """What the model was told. ``interrupted`` after a crash: effects unknown."""

    kind: Literal["tool_result"] = "tool_result"
    step: int
    call_id: str
    name: str
    status: Literal["ok", "error", "timeout", "bad_call", "interrupted"]
    text: str
    exit_code: int | None = None
    duration_s: float = 0.0
    blob: BlobRef | None = None
    raw: JsonValue = None


class CheckRun(AnyEvent):
    """One run of the public check; its words are in the tool's result."""

    kind: Literal["check_run"] = "check_run"
    step: int
    passed: bool
    result: str  # a word of GradeResult


class BenchRun(AnyEvent):
    """One run of the public bench: per-shape milliseconds, plotted over time."""

    kind: Literal["bench_run"] = "bench_run"
    step: int
    median_ms: dict[str, float]
    device: str = "cpu"  # or a GPU's UUID
    waited_s: float = 0.0  # for the exclusive turn
    used_mib_before: int | None = None  # of the GPU, by sessions that stood still


class Compaction(AnyEvent):
    """The context was shortened.

    ``method`` of our own loop: ``elide`` cut long tool output to its ends in all turns but the last
    ``kept_turns``; ``summary`` (the model's own) and ``mechanical`` (a record of the calls) put
    ``summary`` after the task in the place of all turns but the last ``kept_turns``. A turn is a
    message of the user or the harness, a reply, or the results of one reply's calls. Imported
    logs have no method; ``kept_from`` is the first event still in their context.
    """

    kind: Literal["compaction"] = "compaction"
    summary: str
    kept_from: int | None = None
    method: Literal["elide", "summary", "mechanical"] | None = None
    trigger: Literal["window", "overflow"] | None = None  # nearly full, or refused by the provider
    kept_turns: int = 0
    tokens_before: int | None = None  # estimated
    room_tokens: int | None = None  # what a prompt may take, as far as known by then
    raw: JsonValue = None


class Retry(AnyEvent):
    """One try of a model call that failed and is repeated."""

    kind: Literal["retry"] = "retry"
    step: int
    try_number: int
    error: str  # the class: "rate_limit", "server_error", "dropped_stream", ...
    wait_s: float
    message: str = ""


class Fault(AnyEvent):
    """Something broke that is not the model's doing."""

    kind: Literal["fault"] = "fault"
    fault: str
    message: str


class UserMessage(AnyEvent):
    """A later message of the user or of the harness (a nudge, an answer in words)."""

    kind: Literal["user_message"] = "user_message"
    text: str
    author: Literal["user", "harness"] = "user"
    raw: JsonValue = None


class Submission(AnyEvent):
    """The hand-in."""

    kind: Literal["submission"] = "submission"
    explicit: bool  # a submit call, or the last state of the named file
    files: tuple[FileDigest, ...]
    left_out: tuple[str, ...] = ()  # what of the workspace could not be taken, and why


class BudgetNote(AnyEvent):
    """Where the session stands against its caps."""

    kind: Literal["budget"] = "budget"
    steps: int
    usage: Usage
    cost_usd: float | None
    seconds: float


class Note(AnyEvent):
    """What has no other event: a line of an imported log, kept whole, or a flag of the loop
    (topic ``served_model``: another model answered than was asked).
    """

    kind: Literal["note"] = "note"
    topic: str
    text: str = ""
    raw: JsonValue = None


class SessionEnd(AnyEvent):
    """Closes a transcript."""

    kind: Literal["session_end"] = "session_end"
    outcome: Outcome


Event = Annotated[
    SessionStart
    | Prompt
    | Request
    | Reply
    | ToolCallStarted
    | ToolResult
    | CheckRun
    | BenchRun
    | Compaction
    | Retry
    | Fault
    | UserMessage
    | Submission
    | BudgetNote
    | Note
    | SessionEnd,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Parses and writes one event."""
