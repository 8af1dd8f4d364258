"""A session outlives its window, pays for each summary once, and resumes to the same words."""

from collections.abc import Callable

import pytest

from loop_sessions import LoopSession
from model_servers import PROTOCOLS
from orchestrator.agents.compaction import BEFORE
from orchestrator.agents.context import Gauge, elided, kept_turns
from orchestrator.agents.loop import LoopAgent
from orchestrator.models.base import ModelReply, ToolOutcome, ToolTurn, Turn, UserTurn
from orchestrator.models.errors import ContextOverflow
from orchestrator.resume import standing
from orchestrator.watching import shown
from transcripts.events import Compaction, Reply, Request, ToolResult
from transcripts.records import Usage
from transcripts.words import End
from workspaces import text_in

Sessions = Callable[..., LoopSession]
WINDOW = 6000
STEPS = 100
LONG = f"longhaul?steps={STEPS}&output_bytes=2400&context_tokens={WINDOW}"


def reply(text: str = "", tokens: int = 0) -> ModelReply:
    return ModelReply(text, (), "stop", Usage(input_tokens=tokens), None, 0.0)


def results(*texts: str) -> ToolTurn:
    return ToolTurn(tuple(ToolOutcome(f"c{n}", text) for n, text in enumerate(texts)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("window", [WINDOW, None])
def test_a_session_survives_ten_times_its_window(
    session: Sessions, protocol: str, window: int | None
) -> None:
    """Whether the roster knows the window or the provider's refusal teaches it."""
    live = session(LONG, protocol, window=window)
    outcome = live.run()
    assert outcome.end is End.SUBMITTED
    log = text_in(live.folder / "state", "progress.log")
    assert log.split() == [str(step) for step in range(STEPS)]
    said = sum(len(event.text) for event in live.of(ToolResult))
    assert said / 4 > 10 * WINDOW * 0.95
    compactions = live.of(Compaction)
    assert {"elide", "summary"} >= {event.method for event in compactions}
    assert "summary" in {event.method for event in compactions}
    assert len(compactions) < STEPS / 3  # rare: the cached prefix is rewritten by nothing else
    refused = len(live.of(Request)) - len(live.of(Reply))
    assert refused == (0 if window else 1)


def test_a_summary_is_paid_and_counted(session: Sessions) -> None:
    totals = []
    live = session(LONG, window=WINDOW, on_progress=lambda at, _: totals.append(at.usage))
    live.run()
    replies = live.of(Reply)
    summaries = [event for event in replies if event.purpose == "summary"]
    assert summaries
    assert totals[-1].output_tokens == sum(e.usage.output_tokens for e in replies[:-1])
    texts = [event.summary for event in live.of(Compaction) if event.method == "summary"]
    assert all("Summary: " in text for text in texts)
    assert all("progress.log (" in text for text in texts)


def test_replay_shows_what_was_shortened_and_asked(session: Sessions) -> None:
    live = session(LONG, window=WINDOW)
    live.run()
    seen = list(shown(live.events(), whole=True))
    (first, *_) = [one for one in seen if one.title.startswith("context shortened: summary")]
    assert "Summary: " in first.body
    assert any(one.title.startswith("summary ") for one in seen)


def test_every_moment_of_a_session_resumes_to_the_same_conversation(session: Sessions) -> None:
    moments: list[tuple[int, list[Turn], int]] = []
    live = session(
        LONG,
        window=WINDOW,
        on_progress=lambda at, writer: moments.append(
            (writer.next_n, list(at.conversation.turns), at.gauge.estimate(at.conversation.turns))
        ),
    )
    live.run()
    events = live.events()
    assert len(moments) > STEPS
    for n, turns, tokens in moments:
        at, open_call = standing(events[:n])
        assert open_call is None
        if at.open_reply is not None:
            at.close(at.open_reply)
        assert at.conversation.turns == turns
        assert at.gauge.estimate(turns) == tokens


def test_a_crash_between_a_summary_and_its_compaction_pays_once(session: Sessions) -> None:
    live = session(LONG, window=WINDOW)
    live.run()
    first = next(e for e in live.of(Reply) if e.purpose == "summary")
    live.cut(first.n + 1)
    before = len(live.of(Request))
    assert live.run().end is End.SUBMITTED
    went_on = live.events()[first.n + 1 :]
    assert isinstance(went_on[0], Compaction)  # what was paid for is used; nothing is asked again
    assert first.text in went_on[0].summary
    assert len([e for e in live.of(Request) if e.step == first.step]) == 2
    assert len(live.of(Request)) > before


def test_a_crash_after_a_compaction_does_not_compact_again(session: Sessions) -> None:
    live = session(LONG, window=WINDOW)
    live.run()
    first = next(e for e in live.of(Compaction) if e.method == "summary")
    live.cut(first.n + 1)
    assert live.run().end is End.SUBMITTED
    assert isinstance(live.events()[first.n + 1], Request)


def test_a_model_that_will_not_summarise_is_given_a_record_of_its_calls(
    session: Sessions,
) -> None:
    live = session(f"{LONG}&summaries=0", window=WINDOW)
    assert live.run().end is End.SUBMITTED
    assert "summary" not in {event.method for event in live.of(Compaction)}
    record = [e.summary for e in live.of(Compaction) if e.method == "mechanical"][-1]
    assert "- bash" in record
    assert "echo" in record
    assert record.count(BEFORE) == 1  # records do not nest


def test_reasoning_still_comes_back_exactly(session: Sessions) -> None:
    live = session(f"{LONG}&strict_reasoning=1", "anthropic", window=WINDOW)
    assert live.run().end is End.SUBMITTED


def test_a_window_smaller_than_the_roster_says_is_learned(session: Sessions) -> None:
    live = session(LONG, window=10 * WINDOW)
    assert live.run().end is End.SUBMITTED
    assert live.of(Compaction)[0].trigger == "overflow"
    assert live.of(Compaction)[-1].room_tokens <= WINDOW


def test_a_step_larger_than_the_window_is_cut_to_its_ends(session: Sessions) -> None:
    live = session("longhaul?steps=3&output_bytes=60000&context_tokens=6000", window=6000)
    assert live.run().end is End.SUBMITTED
    assert {event.method for event in live.of(Compaction)} == {"elide"}
    assert len(live.of(Request)) == len(live.of(Reply))


def test_a_task_that_does_not_fit_is_the_one_limit(session: Sessions) -> None:
    live = session("longhaul?steps=3&context_tokens=300")
    with pytest.raises(ContextOverflow):
        live.run()


def test_the_rules_are_part_of_the_agents_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = LoopAgent().prompt_digest
    monkeypatch.setattr("orchestrator.agents.loop._COMPACTION", ["other"])
    assert LoopAgent().prompt_digest != before


def test_elided_output_says_so_and_is_elided_once() -> None:
    turn = results("a" * 300 + "b" * 5000 + "c" * 300, "short")
    once = elided(turn)
    assert isinstance(once, ToolTurn)
    long, short = once.results
    assert (long.text[:200], long.text[-200:]) == ("a" * 200, "c" * 200)
    assert "5200 characters of this output were elided" in long.text
    assert short.text == "short"
    assert elided(once) is once


def test_whole_last_steps_are_kept_and_one_at_least() -> None:
    turns = [UserTurn("task"), *[reply("x" * 10), results("y" * 90)] * 3]
    assert kept_turns(turns, 250) == 4
    assert kept_turns(turns, 5) == 2
    assert kept_turns([*turns, UserTurn("go on")], 5) == 3
    assert kept_turns(turns[:1], 5) == 0


def test_the_gauge_follows_the_provider_and_learns_a_room() -> None:
    gauge, turns = Gauge(), [UserTurn("x" * 8000)]
    assert gauge.estimate(turns) == 4000
    gauge.observe(turns, Usage(input_tokens=1000, cache_read_tokens=2000))
    assert gauge.estimate(turns) == 3000
    turns += [reply(), results("y" * 4000)]
    assert gauge.estimate(turns) == 4000
    gauge.overflowed(turns)
    assert gauge.room == 3000  # what was answered last did fit
    gauge.limit(2000)
    assert gauge.room == 2000
