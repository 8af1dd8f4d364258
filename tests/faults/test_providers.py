"""Faults of providers and mistakes of models, in whole sessions over real connections."""

from dataclasses import replace

import pytest

from answers import SUBMIT, WRITE, answer, chunk
from fault_table import end_of
from model_servers import Canned
from transcripts.events import Reply, Retry, ToolResult, UserMessage
from transcripts.words import End

JSON = {"Content-Type": "application/json"}
NOW = {**JSON, "Retry-After": "0"}


HALF = chunk(role="assistant", content="hel")


@pytest.mark.parametrize(
    ("error", "bad"),
    [
        ("rate_limit", Canned([b"{}"], 429, NOW)),
        ("overloaded", Canned([b"{}"], 529, NOW)),
        ("server_error", Canned([b"{}"], 500, NOW)),
        ("server_error", Canned([b"<html>bad gateway"], 502, NOW)),
        ("dropped_stream", Canned([HALF], headers={"Content-Length": "9999"})),
        ("dropped_stream", Canned([HALF])),
        ("malformed", Canned([HALF, b'data: {"choices": [{"del\n\n'])),
        ("", Canned([b'data: {"choices": [{"index": 0, "delta": {"content": "\xff\xfe"}}]}\n\n'])),
    ],
)
def test_a_passing_fault_costs_a_retry_and_nothing_else(playing, error: str, bad: Canned) -> None:
    if not error:
        bad = replace(bad, parts=[*bad.parts, chunk(finish="stop"), b"data: [DONE]\n\n"])
    folder = playing(bad, SUBMIT)
    assert folder.record.outcome.end is End.SUBMITTED
    errors = [event.error for event in folder.events() if isinstance(event, Retry)]
    assert errors == ([error] if error else [])
    replies = [event for event in folder.events() if isinstance(event, Reply)]
    assert len(replies) == (1 if error else 2)


@pytest.mark.parametrize(
    ("fault", "status"), [("a fault that lasts", 500), ("wrong key", 401), ("empty account", 402)]
)
def test_a_lasting_fault_ends_the_session_as_the_providers(
    playing, fault: str, status: int
) -> None:
    folder = playing(Canned([b"{}"], status, NOW))
    assert (folder.record.outcome.end, folder.record.outcome.reason) == end_of(fault)
    assert not folder.is_sealed
    again = playing(SUBMIT)
    assert again.id == folder.id
    assert again.record.outcome.end is End.SUBMITTED


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (answer(("shell", '{"cmd": "ls"}')), "no tool `shell`"),
        (answer(("bash", '{"command": "echo')), "not valid JSON"),
        (answer(("bash", "{}")), "command"),
        (answer(text="I'm sorry, but I can't help with that."), "No tool was called"),
        (answer(), "empty"),
        (answer(text="So I will wri", finish="length"), "cut"),
    ],
)
def test_mistakes_of_a_model_are_answered_and_the_session_goes_on(
    playing, mistake: Canned, words: str
) -> None:
    folder = playing(mistake, SUBMIT)
    assert folder.record.outcome.end is End.SUBMITTED
    told = [e.text for e in folder.events() if isinstance(e, ToolResult | UserMessage)]
    assert words in told[0]


def test_the_model_that_served_is_recorded(playing) -> None:
    folder = playing(answer(WRITE, model="m-mini"), SUBMIT)
    replies = [event for event in folder.events() if isinstance(event, Reply)]
    assert [reply.served_model for reply in replies] == ["m-mini", "m"]
