"""What counts as going in circles, and what does not."""

from collections.abc import Callable
from itertools import count, cycle, islice

import pytest

from loop_sessions import LoopSession
from orchestrator.agents.watchdogs import END_AT, REPEATED, TELL_AT, WAITED_S, Repetition
from orchestrator.models.base import ModelReply, ToolOutcome
from orchestrator.resume import standing
from transcripts.events import Reply, ToolCall, ToolResult, UserMessage
from transcripts.records import Budget, Usage
from transcripts.words import End

Step = tuple[str, str, str, float]  # tool, arguments, result, seconds


def words(steps: object) -> list[str]:
    """What the watchdog says after each step, told as soon as it asks for it."""
    watch, said = Repetition(), []
    for tool, arguments, result, seconds in steps:
        call = ToolCall(id="c", name=tool, arguments=arguments)
        reply = ModelReply("", (call,), "tool_calls", Usage(), None, 0.0)
        word = watch.observe(reply, [ToolOutcome("c", result)], seconds)
        watch.told = watch.told or word == "tell"
        said.append(word)
    return said


def test_the_same_again_is_told_once_and_then_ends() -> None:
    said = words([("bash", "ls", "a", 0.01)] * 40)
    assert said.index("tell") == TELL_AT  # the first time was new
    assert said.index("end") == END_AT
    assert said.count("tell") == 1


@pytest.mark.parametrize("length", [2, 3, 10])
def test_a_cycle_is_a_repetition_too(length: int) -> None:
    circle = [("bash", f"cat {number}", "x", 0.0) for number in range(length)]
    said = words(islice(cycle(circle), 60))
    assert "tell" in said
    assert "end" in said


def test_a_changed_result_is_progress() -> None:
    assert set(words(("bash", "tail -1 log", f"{n} of 99", 0.0) for n in range(99))) == {""}


def test_an_honest_poll_of_a_long_build_is_left_alone() -> None:
    """An hour of looks a minute apart, while the log says nothing new."""
    poll = ("bash", "sleep 60; tail -1 build.log", "compiling", 60.0)
    assert set(words([poll] * 60)) == {""}


def test_a_poll_that_never_ends_is_told_in_the_end() -> None:
    poll = ("bash", "sleep 5; tail -1 build.log", "compiling", WAITED_S + 2)
    said = words([poll] * 300)
    assert said.index("tell") >= 10 * TELL_AT
    assert "end" in said


def test_checks_after_edits_are_work() -> None:
    numbers = count()
    steps = [
        step
        for _ in range(60)
        for step in (
            ("edit", f'{{"new": "{next(numbers)}"}}', "Edited.", 0.0),
            ("check", "{}", "wrong: 1e-3", 0.5),
        )
    ]
    assert set(words(steps)) == {""}


def test_measuring_again_without_a_change_is_a_repetition_whatever_it_says() -> None:
    said = words(("bench", "{}", f"{n} ms", 0.5) for n in range(40))
    assert "end" in said


def test_progress_after_the_warning_takes_it_back() -> None:
    watch = Repetition()
    reply = ModelReply("", (ToolCall(id="c", name="bash", arguments="ls"),), "", Usage(), None, 0.0)
    for _ in range(int(TELL_AT) + 1):
        word = watch.observe(reply, [ToolOutcome("c", "a")], 0.0)
    assert word == "tell"
    watch.told = True
    assert watch.observe(reply, [ToolOutcome("c", "b")], 0.0) == ""
    assert not watch.told


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_a_session_in_circles_is_told_and_then_ends_as_a_limit(
    session: Callable[..., LoopSession], protocol: str
) -> None:
    live = session("longhaul?circles=1", protocol)
    outcome = live.run()
    assert (outcome.end, outcome.reason) == (End.LIMIT, "repetition")
    assert [event.text for event in live.of(UserMessage)] == [REPEATED]
    assert len(live.of(Reply)) == END_AT + 1


def answered(live: LoopSession) -> list[str]:
    """Kinds of events, but for the questions: a kill may leave one without an answer."""
    return [event.kind for event in live.events() if event.kind != "request"]


def test_a_resumed_session_remembers_its_circles(session: Callable[..., LoopSession]) -> None:
    live = session("longhaul?circles=1")
    live.run()
    whole = answered(live)
    (told,) = live.of(UserMessage)
    for cut in (told.n, told.n + 1, live.of(Reply)[-1].n):
        live.cut(cut)
        assert live.run().reason == "repetition"
        assert answered(live) == whole
        assert standing(live.events())[0].repetition.told


def test_a_command_does_not_outlive_the_cap_of_time(session: Callable[..., LoopSession]) -> None:
    live = session("longhaul?tool_s=600", budget=Budget(max_seconds=1))
    outcome = live.run()
    assert (outcome.end, outcome.reason) == (End.LIMIT, "seconds")
    (result,) = live.of(ToolResult)
    assert result.status == "timeout"


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_steps=3), "steps"),
        (Budget(max_tokens=1500), "tokens"),
        (Budget(max_cost_usd=0.0), "cost"),
    ],
)
def test_each_cap_is_an_end_with_its_name(
    session: Callable[..., LoopSession], budget: Budget, reason: str
) -> None:
    assert session("longhaul", budget=budget).run().reason == reason
