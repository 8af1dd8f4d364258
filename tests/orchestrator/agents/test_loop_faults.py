"""Whatever a model or a provider says, the session goes on and the record says what happened."""

from collections.abc import Callable

import pytest

from loop_sessions import LoopSession
from model_servers import PROTOCOLS
from orchestrator.agents.loop import CUT, EMPTY, NUDGE
from orchestrator.models.served import same_model
from orchestrator.resume import standing
from transcripts.events import Note, Reply, ToolCallStarted, ToolResult, UserMessage
from transcripts.words import End
from workspaces import text_in

Sessions = Callable[..., LoopSession]
STEPS = 12


def progress(live: LoopSession) -> list[str]:
    return text_in(live.folder / "state", "progress.log").split()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["drop=0.2", "cut=0.2", "malformed=0.2", "garbled=1"])
def test_broken_streams_lose_no_step(session: Sessions, protocol: str, fault: str) -> None:
    live = session(f"longhaul?steps={STEPS}&{fault}", protocol)
    assert live.run().end is End.SUBMITTED
    assert progress(live) == [str(step) for step in range(STEPS)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_are_no_utf8_are_kept_as_replacement_characters(
    session: Sessions, protocol: str
) -> None:
    live = session(f"longhaul?steps={STEPS}&garbled=1", protocol)
    live.run()
    assert all("\ufffd" in event.text for event in live.of(Reply))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_is_recorded_and_answered_once(session: Sessions, protocol: str) -> None:
    live = session(f"longhaul?steps={STEPS}&refusal=1", protocol)
    outcome = live.run()
    assert (outcome.end, outcome.reason) == (End.NO_SUBMISSION, "stopped")
    assert [event.stop_reason for event in live.of(Reply)] == ["refusal", "refusal"]
    assert [event.text for event in live.of(UserMessage)] == [NUDGE]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_empty_replies_are_answered_until_the_model_has_nothing_to_say(
    session: Sessions, protocol: str
) -> None:
    live = session(f"longhaul?steps={STEPS}&empty=1", protocol)
    assert live.run().reason == "stopped"
    assert {event.text for event in live.of(UserMessage)} == {EMPTY}
    assert len(live.of(Reply)) == len(live.of(UserMessage)) + 1 > 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cut_calls_are_answered_in_words_and_cut_talk_ends_as_a_repetition(
    session: Sessions, protocol: str
) -> None:
    live = session(f"longhaul?steps={STEPS}&length=1", protocol)
    outcome = live.run()
    assert {event.stop_reason for event in live.of(Reply)} == {"length"}
    bad = [event.text for event in live.of(ToolResult) if event.status == "bad_call"]
    assert len(bad) >= STEPS
    assert all("not valid JSON" in text for text in bad)
    assert (outcome.end, outcome.reason) == (End.LIMIT, "repetition")
    assert CUT in [event.text for event in live.of(UserMessage)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_calls_in_one_reply_are_both_answered_in_order(
    session: Sessions, protocol: str
) -> None:
    live = session("flaky", protocol)
    assert live.run().end is End.SUBMITTED
    double = next(event for event in live.of(Reply) if len(event.tool_calls) == 2)
    started = [e.call.id for e in live.of(ToolCallStarted) if e.step == double.step]
    answered = [e.call_id for e in live.of(ToolResult) if e.step == double.step]
    assert started == answered == [call.id for call in double.tool_calls]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_model_than_asked_is_flagged_once(session: Sessions, protocol: str) -> None:
    live = session(f"longhaul?steps={STEPS}&impostor=1", protocol)
    live.run()
    (note,) = live.of(Note)
    assert (note.topic, note.raw) == ("served_model", "impostor")
    assert standing(live.events())[0].strangers == {"impostor"}


def test_the_model_that_was_asked_is_no_stranger(session: Sessions) -> None:
    live = session(f"longhaul?steps={STEPS}")
    live.run()
    assert live.of(Note) == []
    assert CUT not in [event.text for event in live.of(UserMessage)]


@pytest.mark.parametrize(
    ("asked", "served", "same"),
    [
        ("gpt-5", "gpt-5-2025-08-07", True),
        ("z-ai/glm-5", "glm-5", True),
        ("GLM-5", "z-ai/glm-5:free", True),
        ("claude-opus-4[1m]", "claude-opus-4", True),
        ("claude-x", "claude-x-20260101", True),
        ("gpt-5", "gpt-5-mini", False),
        ("glm-5", "glm-4", False),
        ("gpt-5-mini", "gpt-5", False),
    ],
)
def test_versions_and_prefixes_are_no_other_model(asked: str, served: str, same: bool) -> None:
    assert same_model(asked, served) is same
