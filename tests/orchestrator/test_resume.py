"""Where a session stands, read from its transcript."""

from datetime import UTC, datetime
from typing import Any

from orchestrator.models.base import ModelReply, ToolTurn, UserTurn
from orchestrator.resume import standing
from transcripts.events import (
    Event,
    Prompt,
    Reply,
    ToolCall,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)
from transcripts.records import Usage


class Log:
    """Builds a transcript in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: type, offset_s: float = 0.0, **fields: Any) -> None:
        envelope = {"n": len(self.events), "at": datetime.now(UTC), "offset_s": offset_s}
        self.events.append(kind(**envelope, **fields))

    def prompts(self) -> None:
        self.add(Prompt, role="system", text="system")
        self.add(Prompt, role="user", text="do it")

    def reply(self, step: int, *calls: ToolCall, **fields: Any) -> None:
        defaults = {"text": "", "stop_reason": "tool_calls", "cost_usd": 0.5}
        usage = Usage(input_tokens=10, output_tokens=1)
        self.add(Reply, step=step, tool_calls=calls, usage=usage, **{**defaults, **fields})

    def start(self, call: ToolCall, step: int = 0) -> None:
        self.add(ToolCallStarted, step=step, call=call)

    def result(self, call: ToolCall, text: str, step: int = 0, **fields: Any) -> None:
        defaults = {"status": "ok"}
        self.add(
            ToolResult,
            step=step,
            call_id=call.id,
            name=call.name,
            text=text,
            **{**defaults, **fields},
        )


A = ToolCall(id="a", name="bash", arguments="{}")
B = ToolCall(id="b", name="bash", arguments="{}")


def test_an_empty_transcript_stands_at_nothing() -> None:
    at, open_call = standing([])
    assert (at.step, at.conversation.turns, at.open_reply, open_call) == (0, [], None, None)


def test_a_finished_step_is_part_of_the_conversation() -> None:
    log = Log()
    log.prompts()
    log.reply(0, A)
    log.start(A)
    log.result(A, "done")
    log.reply(1, B)
    at, open_call = standing(log.events)
    user, first, answers = at.conversation.turns
    assert user == UserTurn("do it")
    assert isinstance(first, ModelReply)
    assert isinstance(answers, ToolTurn)
    assert [result.text for result in answers.results] == ["done"]
    assert at.open_reply is not None
    assert at.open_reply.tool_calls == (B,)
    assert open_call is None  # never started: it will simply be run
    assert at.step == 2


def test_a_started_call_without_result_is_interrupted_and_later_calls_are_not() -> None:
    log = Log()
    log.prompts()
    log.reply(0, A, B)
    log.start(A)
    at, open_call = standing(log.events)
    assert open_call is not None
    assert open_call.call == A
    assert at.answered == []


def test_results_of_repeated_ids_are_told_apart_by_position() -> None:
    log = Log()
    log.prompts()
    log.reply(0, A, A)
    for text in ("first", "second"):
        log.start(A)
        log.result(A, text)
    at, _ = standing(log.events)
    assert [answer.text for answer in at.answered] == ["first", "second"]


def test_totals_include_the_past_and_an_unknown_cost_stays_unknown() -> None:
    log = Log()
    log.prompts()
    log.reply(0, A)
    log.start(A)
    log.result(A, "x")
    assert standing(log.events)[0].cost_usd == 0.5
    log.reply(1, A, cost_usd=None)
    at, _ = standing(log.events)
    assert at.cost_usd is None
    assert at.usage.input_tokens == 20


def test_seconds_add_up_over_restarts() -> None:
    log = Log()
    log.add(Prompt, offset_s=4.0, role="system", text="s")
    log.add(Prompt, offset_s=1.0, role="user", text="u")  # a new process: offsets restart
    log.add(UserMessage, offset_s=2.5, text="go on", author="harness")
    assert standing(log.events)[0].seconds == 6.5


def test_silent_replies_before_the_open_one_are_counted() -> None:
    log = Log()
    log.prompts()
    log.reply(0, text="thinking", stop_reason="stop")
    log.add(UserMessage, text="submit?", author="harness")
    log.reply(1, text="done", stop_reason="stop")
    at, _ = standing(log.events)
    assert at.silent_replies == 1
    assert at.open_reply is not None
    assert at.open_reply.text == "done"
