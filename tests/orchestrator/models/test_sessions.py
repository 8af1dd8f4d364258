"""Whole scripted sessions through the official SDKs, both protocols."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_servers import PROTOCOLS, TOOLS
from orchestrator.models.base import Conversation, ModelReply, ToolOutcome, ToolTurn, UserTurn
from orchestrator.models.errors import BadRequest
from tasks.loader import load_task, submission_dir

TASK = load_task("fused-softmax-topk")


def question():
    return Conversation("You are an agent.", [UserTurn(f"Here is your task.\n\n{TASK.prompt}")])


def answer_turn(reply):
    """What a harness would say to a reply."""
    if not reply.tool_calls:
        return UserTurn("Go on.")
    return ToolTurn(tuple(ToolOutcome(call.id, "done\n") for call in reply.tool_calls))


def play(model, conversation, most=40):
    """Ask until the model has nothing more to say; the replies and the retry notices."""
    replies, notices = [], []
    while len(replies) < most:
        reply = model.reply(conversation, TOOLS, notices.append)
        replies.append(reply)
        conversation.turns += [reply, answer_turn(reply)]
        if not reply.tool_calls and "done" in reply.text:
            break
    return replies, notices


def written(replies):
    calls = [call for reply in replies for call in reply.tool_calls if call.name == "write"]
    arguments = [json.loads(call.arguments) for call in calls]
    return {one["path"]: one["content"] for one in arguments}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["oracle", "naive", "wrong"])
def test_a_story_writes_its_submission_byte_for_byte(connect, protocol, kind):
    replies, notices = play(connect(kind, protocol), question())
    folder = submission_dir(TASK, kind)
    shipped = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert written(replies) == shipped
    names = [call.name for reply in replies for call in reply.tool_calls]
    assert names[:2] == ["bash", "view"]
    assert names[-3:] == ["check", "bench", "submit"]
    assert notices == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_cheater_writes_the_default_cheat_without_its_expectation(connect, protocol):
    replies, _ = play(connect("cheater", protocol), question())
    files = written(replies)
    assert files
    assert "expect.toml" not in files


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_idle_talks_twice_and_calls_nothing(connect, protocol):
    model, conversation = connect("idle", protocol), question()
    for _ in range(2):
        reply = model.reply(conversation, TOOLS, pytest.fail)
        assert reply.text
        assert reply.tool_calls == ()
        assert reply.stop_reason == "stop"
        conversation.turns += [reply, UserTurn("Go on.")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flaky_survives_every_fault_and_hands_in(connect, protocol):
    replies, notices = play(connect("flaky", protocol), question())
    assert [notice.error for notice in notices] == [
        "rate_limit",
        "server_error",
        "dropped_stream",
        "dropped_stream",
        "malformed",
        "overloaded",
    ]
    empty = replies[1]
    assert (empty.text, empty.tool_calls, empty.stop_reason) == ("", (), "stop")
    names = [[call.name for call in reply.tool_calls] for reply in replies]
    assert ["shell"] in names
    assert ["bash", "view"] in names
    assert '{"command": "echo half' in [c.arguments for r in replies for c in r.tool_calls]
    assert names[-2] == ["submit"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_reasoning_comes_back_exactly(connect, protocol):
    strict = connect("oracle?strict_reasoning=1", protocol)
    replies, _ = play(strict, question())
    assert replies[0].reasoning == "What is here?"
    assert written(replies)


def test_anthropic_thinking_signature_and_redacted_blocks_are_kept(connect):
    reply = connect("oracle", "anthropic").reply(question(), TOOLS, pytest.fail)
    kinds = [block["type"] for block in reply.raw["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert reply.raw["content"][0]["signature"]
    assert reply.raw["content"][1]["data"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_history_with_changed_reasoning_is_refused_by_the_strict_story(connect, protocol):
    """The strict story would notice a client that loses reasoning."""
    model, conversation = connect("oracle?strict_reasoning=1", protocol), question()
    reply = model.reply(conversation, TOOLS, pytest.fail)
    forged = json.loads(json.dumps(reply.raw).replace("What is here?", "What was here?"))
    changed = ModelReply(
        reply.text, reply.tool_calls, reply.stop_reason, reply.usage, None, 0.0, raw=forged
    )
    conversation.turns += [changed, answer_turn(changed)]
    with pytest.raises(BadRequest, match="reasoning of step 0"):
        model.reply(conversation, TOOLS, pytest.fail)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_usage_counts_every_token_once(connect, protocol):
    model, conversation = connect("oracle", protocol), question()
    first = model.reply(conversation, TOOLS, pytest.fail)
    conversation.turns += [first, answer_turn(first)]
    second = model.reply(conversation, TOOLS, pytest.fail)
    assert first.usage.cache_read_tokens == 0
    assert second.usage.cache_read_tokens > second.usage.input_tokens
    assert 0 < second.usage.reasoning_tokens < second.usage.output_tokens
    assert (second.usage.cache_write_5m_tokens > 0) == (protocol == "anthropic")


def test_one_hour_cache_writes_are_counted_apart(connect):
    usage = connect("oracle", "anthropic", cache="1h").reply(question(), TOOLS, pytest.fail).usage
    assert usage.cache_write_1h_tokens > 0
    assert usage.cache_write_5m_tokens == 0


def test_a_shortened_history_does_not_send_a_story_back(connect):
    model, conversation = connect("longhaul?steps=9", "openai"), question()
    for _ in range(4):
        reply = model.reply(conversation, TOOLS, pytest.fail)
        conversation.turns += [reply, answer_turn(reply)]
    del conversation.turns[1:5]  # as a compaction does
    reply = model.reply(conversation, TOOLS, pytest.fail)
    assert "echo 4 >> progress.log" in reply.tool_calls[0].arguments


def test_longhaul_hands_in_after_its_steps(connect):
    replies, _ = play(connect("longhaul?steps=3", "openai"), question())
    commands = [c.arguments for r in replies for c in r.tool_calls if c.name == "bash"]
    assert [json.loads(one)["command"] for one in commands] == [
        f"echo {step} >> progress.log" for step in range(3)
    ]
    assert replies[-2].tool_calls[0].name == "submit"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_known_task_is_said_in_words(connect, protocol):
    conversation = Conversation("", [UserTurn("What is the weather?")])
    reply = connect("oracle", protocol).reply(conversation, TOOLS, pytest.fail)
    assert TASK.name in reply.text
    assert reply.tool_calls == ()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sixty_four_streams_at_once_do_not_mix(connect, protocol):
    together = threading.Barrier(64)

    def session(number):
        model = connect(f"longhaul?steps={number + 3}&chunk_ms=1", protocol)
        conversation = question()
        together.wait(timeout=60)
        reasons = []
        for _ in range(3):
            reply = model.reply(conversation, TOOLS, pytest.fail)
            reasons.append(reply.reasoning)
            conversation.turns += [reply, answer_turn(reply)]
        return reasons

    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(session, range(64)))
    assert results == [
        [f"Step {step} of {number + 3}." for step in range(3)] for number in range(64)
    ]
