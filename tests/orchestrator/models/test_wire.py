"""Answers and requests of every dialect as they passed, read for the transcript."""

import json

import pytest

from orchestrator.models.scripted_anthropic import AnthropicWire
from orchestrator.models.scripted_gemini import GeminiWire
from orchestrator.models.scripted_openai import OpenAIWire
from orchestrator.models.scripted_responses import ResponsesWire
from orchestrator.models.scripted_wire import Asked
from orchestrator.models.stories import Say, call
from orchestrator.models.wire_answers import reply_of
from orchestrator.models.wire_requests import newest_of

WIRES = {
    "openai": OpenAIWire(),
    "openai-responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "gemini": GeminiWire(),
}
SAY = Say("Looking.", (call("bash", command="ls"), call("bash", command="pwd")), "What is here?")
ASKED = Asked("do it", 3, ({"name": "bash"},), 900, 100, ())

dialects = pytest.mark.parametrize("dialect", WIRES)


def message(dialect):
    return WIRES[dialect].message(SAY, ASKED, {"model": "m"})


@dialects
def test_a_streamed_answer_is_one_reply(dialect):
    reply = reply_of(dialect, b"".join(WIRES[dialect].stream(message(dialect))), 0.5)
    assert (reply.text, reply.reasoning) == ("Looking.", "What is here?")
    assert [json.loads(one.arguments) for one in reply.tool_calls] == [
        {"command": "ls"},
        {"command": "pwd"},
    ]
    assert len({one.id for one in reply.tool_calls}) == 2
    assert (reply.stop_reason, reply.served_model) == ("tool_calls", "m")
    assert reply.usage.input_tokens + reply.usage.cache_read_tokens >= 100
    assert reply.usage.output_tokens > reply.usage.reasoning_tokens > 0


@dialects
def test_an_unstreamed_answer_is_the_same_reply(dialect):
    whole = message(dialect)
    streamed = reply_of(dialect, b"".join(WIRES[dialect].stream(whole)), 0.5)
    at_once = reply_of(dialect, json.dumps(whole).encode(), 0.5)
    for field in ("text", "reasoning", "stop_reason", "usage", "served_model"):
        assert getattr(at_once, field) == getattr(streamed, field)
    assert [one.name for one in at_once.tool_calls] == ["bash", "bash"]


@dialects
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"a": 1}', b"data: {\n\n", b"null"])
def test_what_is_no_answer_is_none(dialect, body):
    assert reply_of(dialect, body, 0.0) is None


@dialects
def test_a_cut_stream_is_no_reply(dialect):
    parts = WIRES[dialect].stream(message(dialect))
    assert reply_of(dialect, b"".join(parts[: len(parts) // 2]), 0.0) is None


def answered(name, text):
    return {"functionResponse": {"id": name, "name": "bash", "response": {"output": text}}}


REQUESTS = {
    "openai": {
        "tools": [{}],
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "old"}]},
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
            {"role": "user", "content": "a reminder"},
        ],
    },
    "openai-responses": {
        "tools": [{}],
        "instructions": "S",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "do it"}]},
            {"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "two"},
            {"role": "user", "content": "a reminder"},
        ],
    },
    "anthropic": {
        "tools": [{}],
        "system": [{"type": "text", "text": "S"}],
        "messages": [
            {"role": "user", "content": "do it"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [{"type": "text", "text": "two"}],
                    },
                    {"type": "text", "text": "a reminder"},
                ],
            },
        ],
    },
    "gemini": {
        "tools": [{}],
        "systemInstruction": {"parts": [{"text": "S"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "do it"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "bash"}}]},
            {
                "role": "user",
                "parts": [
                    answered("a", "one"),
                    answered("b", "two"),
                    {"text": "a reminder"},
                ],
            },
        ],
    },
}


@dialects
def test_the_end_of_a_request_is_what_it_adds(dialect):
    newest = newest_of(dialect, json.dumps(REQUESTS[dialect]).encode())
    assert [(one.call_id, one.text) for one in newest.results] == [("a", "one"), ("b", "two")]
    assert newest.texts == ("a reminder",)
    assert (newest.system, newest.offers_tools) == ("S", True)


@dialects
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages": 1, "input": 1, "contents": 1}'])
def test_what_is_no_request_is_none(dialect, body):
    assert newest_of(dialect, body) is None
