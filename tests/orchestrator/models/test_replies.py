"""From the events of providers to one normalised reply: spellings, extras, usage."""

import json

import pytest

from orchestrator.models.anthropic_reply import MessageAssembler
from orchestrator.models.base import UserTurn
from orchestrator.models.openai_reply import ChatAssembler
from orchestrator.models.openai_reply import usage_of as openai_usage
from orchestrator.models.sse import ServerEvent
from orchestrator.models.streaming import EncodedTurns, dump
from transcripts.records import Usage


def chat(*deltas, finish="stop", usage=None):
    assembler = ChatAssembler()
    for delta in deltas:
        chunk = {"model": "served", "choices": [{"delta": delta, "finish_reason": None}]}
        assembler.feed(ServerEvent(None, json.dumps(chunk)))
    last = {"choices": [{"delta": {}, "finish_reason": finish}], "usage": usage}
    assembler.feed(ServerEvent(None, json.dumps(last)))
    assert assembler.whole
    return assembler.reply(0.0)


def call(index, **fields):
    return {"tool_calls": [{"index": index, **fields}]}


def test_text_and_reasoning_in_pieces_are_joined_and_kept_raw():
    reply = chat(
        {"reasoning_content": "let "},
        {"reasoning_content": "me see"},
        {"content": "hel"},
        {"content": "lo"},
    )
    assert (reply.text, reply.reasoning, reply.served_model) == ("hello", "let me see", "served")
    assert reply.raw == {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "let me see",
    }


def test_openrouter_reasoning_details_are_joined_by_item():
    reply = chat(
        {
            "reasoning": "a",
            "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}],
        },
        {
            "reasoning": "b",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "b", "signature": "sig==", "index": 0}
            ],
        },
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz", "index": 1}]},
    )
    assert reply.reasoning == "ab"
    assert reply.raw["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "signature": "sig==", "index": 0},
        {"type": "reasoning.encrypted", "data": "xyz", "index": 1},
    ]


def test_two_calls_in_pieces():
    reply = chat(
        call(0, id="a", type="function", function={"name": "bash", "arguments": ""}),
        call(0, function={"arguments": '{"x":'}),
        call(0, function={"arguments": "1}"}),
        call(1, id="b", type="function", function={"name": "view", "arguments": "{}"}),
        finish="tool_calls",
    )
    assert [(one.id, one.name, one.arguments) for one in reply.tool_calls] == [
        ("a", "bash", '{"x":1}'),
        ("b", "view", "{}"),
    ]


def test_two_whole_calls_under_one_index_are_two_calls():
    """Gemini's compatible endpoint numbers every call 0."""
    reply = chat(
        call(0, id="a", function={"name": "bash", "arguments": "{}"}),
        call(0, id="b", function={"name": "view", "arguments": "{}"}),
    )
    assert [one.name for one in reply.tool_calls] == ["bash", "view"]


def test_a_repeated_name_is_not_doubled_and_a_missing_id_is_given():
    reply = chat(
        call(0, function={"name": "bash", "arguments": "{"}),
        call(0, function={"name": "bash", "arguments": "}"}),
    )
    assert reply.tool_calls[0].name == "bash"
    assert reply.tool_calls[0].id == reply.raw["tool_calls"][0]["id"] != ""


def test_extras_of_calls_are_kept_raw():
    extra = {"google": {"thought_signature": "abc"}}
    function = {"name": "bash", "arguments": "{}"}
    reply = chat(call(0, id="a", function=function, extra_content=extra))
    assert reply.raw["tool_calls"][0]["extra_content"] == extra


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("sensitive", "other:sensitive"),
    ],
)
def test_stop_reasons(finish, reason):
    assert chat({"content": "x"}, finish=finish).stop_reason == reason


def test_a_stop_after_tool_calls_is_a_tool_call():
    function = {"name": "bash", "arguments": "{}"}
    assert chat(call(0, id="a", function=function), finish="stop").stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input_tokens=40, cache_read_tokens=60, output_tokens=20, reasoning_tokens=5),
        ),
        (  # DeepSeek
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 8},
            Usage(input_tokens=2, cache_read_tokens=8, output_tokens=2),
        ),
        (  # xAI: reasoning beside the completion
            {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input_tokens=10, output_tokens=7, reasoning_tokens=5),
        ),
        (  # Gemini: thoughts only in the total
            {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 15},
            Usage(input_tokens=10, output_tokens=5, reasoning_tokens=3),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
            },
            Usage(input_tokens=1, cache_read_tokens=4, cache_write_5m_tokens=5, output_tokens=1),
        ),
    ],
)
def test_usage_spellings(raw, usage):
    assert openai_usage(raw) == usage


def test_unknown_anthropic_events_are_skipped_and_unknown_blocks_kept():
    assembler = MessageAssembler()
    block = {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}
    for data in (
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}},
        {"type": "a_new_event"},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {}},
        {"type": "message_stop"},
    ):
        assembler.feed(ServerEvent(data["type"], json.dumps(data)))
    reply = assembler.reply(0.0)
    assert reply.raw["content"] == [block]
    assert reply.stop_reason == "other:pause_turn"


def test_a_turn_is_encoded_once_until_the_past_changes():
    seen = []

    def encode(turn):
        seen.append(turn.text)
        return dump(turn.text)

    encoded = EncodedTurns(encode)
    turns = [UserTurn("a"), UserTurn("b")]
    encoded.joined(turns)
    turns.append(UserTurn("c"))
    assert encoded.joined(turns) == b'"a","b","c"'
    assert seen == ["a", "b", "c"]
    turns[1] = UserTurn("shorter")
    assert encoded.joined(turns) == b'"a","shorter","c"'
    assert encoded.joined(turns[1:]) == b'"shorter","c"'


def test_a_lone_surrogate_never_breaks_a_request():
    assert dump({"text": "half \ud83d"}) == b'{"text":"half ?"}'
