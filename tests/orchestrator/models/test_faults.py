"""What a client does when a provider fails, over real connections."""

import json
import threading

import pytest

from model_servers import PROTOCOLS, QUICK, TOOLS, Canned
from orchestrator.models.base import Conversation, UserTurn
from orchestrator.models.errors import (
    BadKey,
    BadRequest,
    ContextOverflow,
    DroppedStream,
    Interrupted,
    MalformedReply,
    OutOfQuota,
    Overloaded,
    RateLimited,
    ServerError,
    Unreachable,
)
from orchestrator.models.retry import ONCE, RetryPolicy

JSON = {"Content-Type": "application/json"}
HELLO = Conversation("", [UserTurn("hello")])


def openai_chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "m", "choices": [choice]}).encode() + b"\n\n"


def anthropic_event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = {
    "openai": [openai_chunk({"role": "assistant", "content": "hel"})],
    "anthropic": [
        anthropic_event("message_start", message={"model": "m", "usage": {"input_tokens": 3}}),
        anthropic_event(
            "content_block_start", index=0, content_block={"type": "text", "text": "hel"}
        ),
    ],
}
FINISH = {
    "openai": [openai_chunk({"content": "lo"}, "stop")],
    "anthropic": [
        anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"}),
        anthropic_event(
            "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}
        ),
    ],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("knob", "error", "kind"),
    [
        ("e429", RateLimited, "rate_limit"),
        ("e500", ServerError, "server_error"),
        ("e529", Overloaded, "overloaded"),
        ("drop", DroppedStream, "dropped_stream"),
        ("cut", DroppedStream, "dropped_stream"),
        ("malformed", MalformedReply, "malformed"),
    ],
)
def test_a_lasting_fault_is_given_up_by_class(connect, protocol, knob, error, kind):
    policy = RetryPolicy({kind: 3}, first_wait_s=0.001, longest_wait_s=0.002)
    model = connect(f"oracle?{knob}=1", protocol, policy=policy)
    notices = []
    with pytest.raises(error):
        model.reply(HELLO, TOOLS, notices.append)
    assert [(notice.error, notice.try_number) for notice in notices] == [(kind, 1), (kind, 2)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_empty_reply_is_returned_not_repeated(connect, protocol):
    reply = connect("oracle?empty=1", protocol).reply(HELLO, TOOLS, pytest.fail)
    assert (reply.text, reply.tool_calls, reply.stop_reason) == ("", (), "stop")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"type": "authentication_error", "message": "no"}, BadKey),
        (403, {"message": "no"}, BadKey),
        (402, {"message": "pay"}, OutOfQuota),
        (429, {"code": "insufficient_quota", "message": "pay"}, OutOfQuota),
        (400, {"type": "invalid_request_error", "message": "no such field"}, BadRequest),
        (404, {"message": "no such model"}, BadRequest),
        (400, {"code": "context_length_exceeded", "message": "long"}, ContextOverflow),
        (400, {"message": "prompt is too long: 2 > 1 maximum"}, ContextOverflow),
        (413, {"type": "request_too_large", "message": "big"}, ContextOverflow),
    ],
)
def test_refusals_are_never_repeated(connect, canned, protocol, status, body, error):
    server = canned(Canned([json.dumps({"error": body}).encode()], status, JSON))
    model = connect("oracle", protocol, base_url=server.base_url())
    with pytest.raises(error):
        model.reply(HELLO, TOOLS, pytest.fail)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b'{"error": {"type": "authentication_error", "message": "no"}}', BadKey),
        (429, b'{"error": {"message": "slowly"}}', RateLimited),
        (400, b'{"error": {"message": "prompt is too long: 2 > 1 maximum"}}', ContextOverflow),
        (502, b"<html>bad gateway</html>", ServerError),
        (400, b"\xff\xfe", BadRequest),
    ],
)
def test_a_later_request_fails_like_the_first(connect, canned, protocol, status, body, error):
    """The SDK makes the first request alone; what it would say of an error is said by us then."""
    good = Canned([*START[protocol], *FINISH[protocol]])
    server = canned(good, Canned([body], status, {**JSON, "Retry-After": "7"}), good)
    model = connect("oracle", protocol, base_url=server.base_url(), policy=ONCE)
    assert model.reply(HELLO, TOOLS, pytest.fail).text == "hello"
    with pytest.raises(error) as failure:
        model.reply(HELLO, TOOLS, pytest.fail)
    assert failure.value.retry_after_s == 7
    assert str(status) in str(failure.value)
    assert model.reply(HELLO, TOOLS, pytest.fail).text == "hello"
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]
    assert len(set(server.keys)) == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_later_request_to_a_server_that_is_gone_is_unreachable(connect, canned, protocol):
    server = canned(Canned([*START[protocol], *FINISH[protocol]]))
    model = connect("oracle", protocol, base_url=server.base_url(), policy=ONCE)
    model.reply(HELLO, TOOLS, pytest.fail)
    server.close()
    with pytest.raises(Unreachable):
        model.reply(HELLO, TOOLS, pytest.fail)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_server_is_unreachable(connect, protocol, canned):
    server = canned(Canned())
    url = server.base_url()
    server.close()
    with pytest.raises(Unreachable):
        connect("oracle", protocol, base_url=url, policy=ONCE).reply(HELLO, TOOLS, pytest.fail)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_whole_answer_is_kept_when_its_terminator_is_lost(connect, canned, protocol):
    server = canned(Canned([*START[protocol], *FINISH[protocol], b"data: {broken\n\n"]))
    model = connect("oracle", protocol, base_url=server.base_url())
    assert model.reply(HELLO, TOOLS, pytest.fail).text == "hello"
    assert len(server.bodies) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_inside_a_stream_is_retried_with_the_same_key(connect, canned, protocol):
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    broken = f"event: error\ndata: {json.dumps(error)}\n\n".encode()
    server = canned(
        Canned([*START[protocol], broken]), Canned([*START[protocol], *FINISH[protocol]])
    )
    model = connect("oracle", protocol, base_url=server.base_url())
    notices = []
    assert model.reply(HELLO, TOOLS, notices.append).text == "hello"
    assert [notice.error for notice in notices] == ["overloaded"]
    model.reply(HELLO, TOOLS, pytest.fail)
    assert server.keys[0] == server.keys[1] != server.keys[2]
    assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keep_alives_without_tokens_are_a_stall(connect, canned, protocol):
    released = threading.Event()
    server = canned(Canned(START[protocol], ping_until=released))
    model = connect("oracle", protocol, base_url=server.base_url(), policy=ONCE, stall_s=0.2)
    with pytest.raises(DroppedStream, match="no token for"):
        model.reply(HELLO, TOOLS, pytest.fail)
    released.set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_keep_alives_without_a_first_token_are_unreachable(connect, canned, protocol):
    released = threading.Event()
    server = canned(Canned(ping_until=released))
    model = connect("oracle", protocol, base_url=server.base_url(), policy=ONCE, stall_s=0.2)
    with pytest.raises(Unreachable, match="no first token"):
        model.reply(HELLO, TOOLS, pytest.fail)
    released.set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_page_instead_of_a_stream_names_the_route(connect, canned, protocol):
    server = canned(Canned([b"<html>log in</html>"], headers={"Content-Type": "text/html"}))
    model = connect("oracle", protocol, base_url=server.base_url(), policy=ONCE)
    with pytest.raises(MalformedReply, match="text/html"):
        model.reply(HELLO, TOOLS, pytest.fail)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_retry_after_is_told_and_honoured(connect, canned, protocol):
    headers = {**JSON, "Retry-After": "0.02"}
    server = canned(Canned([b"{}"], 429, headers), Canned([*START[protocol], *FINISH[protocol]]))
    notices = []
    connect("oracle", protocol, base_url=server.base_url(), policy=RetryPolicy()).reply(
        HELLO, TOOLS, notices.append
    )
    assert 0.02 <= notices[0].wait_s <= 0.022


def test_a_wait_before_a_retry_ends_when_the_session_stops(connect, canned):
    stopping = threading.Event()
    server = canned(Canned([b"{}"], 429, {**JSON, "Retry-After": "3000"}))
    model = connect(
        "oracle", "openai", base_url=server.base_url(), policy=RetryPolicy(), stopping=stopping
    )
    with pytest.raises(Interrupted):
        model.reply(HELLO, TOOLS, lambda _: stopping.set())


def test_a_broken_call_goes_back_as_valid_json_of_the_same_call(connect, canned):
    call = {"index": 0, "id": "c1", "function": {"name": "ba sh", "arguments": '{"command": "e'}}
    first = [openai_chunk({"tool_calls": [call]}, "tool_calls")]
    server = canned(Canned(first), Canned([*START["openai"], *FINISH["openai"]]))
    model = connect("oracle", "openai", base_url=server.base_url(), policy=QUICK)
    conversation = Conversation("", [UserTurn("hello")])
    reply = model.reply(conversation, TOOLS, pytest.fail)
    assert reply.tool_calls[0].arguments == '{"command": "e'
    conversation.turns += [reply, UserTurn("that was no JSON")]
    model.reply(conversation, TOOLS, pytest.fail)
    sent = json.loads(server.bodies[1])["messages"][1]["tool_calls"][0]
    assert sent["id"] == "c1"
    assert sent["function"]["name"] == "ba_sh"
    assert json.loads(sent["function"]["arguments"]) == {"invalid_json": '{"command": "e'}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_empty_reply_goes_back_with_content(connect, canned, protocol):
    """Providers refuse an assistant message without content."""
    server = canned(Canned([*START[protocol], *FINISH[protocol]]))
    model = connect("oracle", protocol, base_url=server.base_url())
    empty = connect("oracle?empty=1", protocol).reply(HELLO, TOOLS, pytest.fail)
    turns = [UserTurn("hello"), empty, UserTurn("You said nothing.")]
    model.reply(Conversation("", turns), TOOLS, pytest.fail)
    message = json.loads(server.bodies[0])["messages"][1]
    assert message["role"] == "assistant"
    assert "(no content)" in json.dumps(message["content"])
