"""The gateway through the real SDKs, over its socket, before a provider on this machine."""

import json
import queue
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
import pytest

from orchestrator.gateway.terms import Refused
from orchestrator.models.scripted import ScriptedServer
from providers import JSON, KEY, STREAM, chat_stream, entry
from tasks.loader import load_task

ASK = [{"role": "user", "content": "hi"}]
ERRORS = {"error": {"message": "later", "type": "rate_limit_error"}}


def said(stream):
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def ask(session, **more):
    return said(
        session.openai().chat.completions.create(model="m-1", messages=ASK, stream=True, **more)
    )


def test_a_streamed_chat_passes_and_is_kept(session, upstream):
    one = session()
    assert ask(one) == "hello"
    (kept,) = one.exchanges
    assert (kept.status, kept.served_model, kept.error, kept.number) == (200, "m-1", "", 0)
    assert (kept.usage.input_tokens, kept.usage.output_tokens) == (100, 10)
    assert kept.cost_usd == pytest.approx(120e-6)
    assert kept.response == b"".join(chat_stream())
    assert "pinned:stream_options" in kept.rewrites
    totals = one.admission.totals()
    assert (totals.calls, totals.failed_calls) == (1, 0)
    assert totals.cost_usd == pytest.approx(120e-6)


def test_the_key_is_added_outside_and_headers_are_a_list(session, upstream):
    one = session()
    one.openai().with_options(
        default_headers={"x-evil": "1", "cookie": "a"}
    ).chat.completions.create(model="m-1", messages=ASK, stream=True).close()
    (seen,) = upstream.seen
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["authorization"] == f"Bearer {KEY}"
    assert one.admission.token not in str(seen)
    assert not {"x-evil", "cookie"} & headers.keys()
    assert not [name for name in headers if name.startswith("x-stainless")]


@pytest.mark.parametrize("cut", [1, 7, len(KEY) - 1])
def test_a_provider_that_says_the_key_is_not_heard(session, upstream, cut):
    first, *rest = chat_stream(f"<{KEY}>")
    at = first.index(KEY.encode()) + cut
    upstream.answers = [(200, STREAM, [first[:at], first[at:], *rest])]
    one = session()
    assert ask(one) == "<[hidden]>"
    assert KEY.encode() not in one.exchanges[0].response
    upstream.answers = [(400, JSON, [json.dumps({"error": {"message": KEY}}).encode()])]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(one)
    assert KEY not in str(refused.value)
    assert KEY not in str(one.exchanges)


def test_tokens_open_their_own_session_only(session, upstream):
    one, other = session(), session(before_call=lambda: (_ for _ in ()).throw(Refused("cap", "no")))
    with pytest.raises(openai.AuthenticationError):
        one.openai(token="wrong").models.list()
    assert [m.id for m in one.openai().models.list()] == ["m-1"]
    with pytest.raises(openai.PermissionDeniedError):
        one.openai(token=other.admission.token).chat.completions.create(model="m-1", messages=ASK)
    assert not one.exchanges
    one.admission.close()
    with pytest.raises(openai.AuthenticationError):
        one.openai().models.list()
    assert not upstream.seen


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/openai/v1/embeddings"),
        ("GET", "/openai/v1/chat/completions"),
        ("POST", "/openai/v1/../../etc/passwd"),
        ("POST", "/session/check"),
        ("DELETE", "/"),
        ("TRACE", "/openai/v1/models/x"),
    ],
)
def test_nothing_else_is_reachable(session, upstream, method, path):
    one = session()
    headers = {"authorization": f"Bearer {one.admission.token}"}
    assert one.http.request(method, path, headers=headers, content=b"{}").status_code == 404
    assert not upstream.seen


def test_an_absolute_address_in_the_request_line_leads_nowhere(session, upstream, gateway):
    one = session()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(one.admission.socket))
        raw.sendall(
            f"GET {upstream.url}/secret HTTP/1.1\r\nHost: {upstream.url[7:]}\r\n"
            f"Authorization: Bearer {one.admission.token}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.split(b" ")[1] in (b"404", b"400")
    assert not upstream.seen


def test_the_wrong_dialect_is_told_what_to_do(session):
    one = session("openai")
    with pytest.raises(anthropic.BadRequestError, match="choose a harness that speaks it"):
        one.anthropic().messages.create(model="m-1", max_tokens=5, messages=ASK)


def test_a_cap_ends_calls_for_good(session, upstream):
    def capped():
        raise Refused("limit", "the session's cap of tokens is reached")

    one = session(before_call=capped)
    with pytest.raises(openai.PermissionDeniedError, match="cap of tokens"):
        ask(one)
    assert (one.exchanges[0].status, one.exchanges[0].sent) == (403, b"")
    assert not upstream.seen


def test_failed_tries_are_repeated_before_the_first_byte_and_kept(session, upstream):
    upstream.answers = [
        (429, {**JSON, "Retry-After": "0"}, [json.dumps(ERRORS).encode()]),
        (500, JSON, [b"{}"]),
        (200, STREAM, chat_stream()),
    ]
    one = session()
    assert ask(one) == "hello"
    assert [one.error for one in one.exchanges[0].tries] == ["rate_limit", "server_error"]
    assert len(upstream.seen) == 3


def test_what_is_refused_is_not_repeated(session, upstream):
    upstream.answers = [(400, JSON, [json.dumps({"error": {"message": "bad field"}}).encode()])]
    one = session()
    with pytest.raises(openai.BadRequestError, match="bad field"):
        ask(one)
    assert len(upstream.seen) == 1
    assert one.admission.totals().failed_calls == 1


def test_a_stream_that_breaks_is_passed_on_as_broken_and_not_repeated(session, upstream):
    upstream.answers = [(200, STREAM, [*chat_stream()[:1], None])]
    one = session()
    with pytest.raises(Exception, match=r"(?i)connection error|closed|incomplete|peer"):
        ask(one)
    assert len(upstream.seen) == 1
    assert one.exchanges[0].error


def test_a_stream_that_ends_too_early_is_told(session, upstream):
    upstream.answers = [(200, STREAM, chat_stream()[:1])]
    one = session()
    ask(one)
    assert one.exchanges[0].error == "the answer ended before it was whole"


def test_an_answer_that_cannot_be_kept_does_not_end(session, upstream):
    def full(exchange):
        raise OSError(28, "No space left on device")

    one = session(record=full)
    with pytest.raises(Exception, match=r"(?i)connection error|closed|incomplete|peer"):
        ask(one)


def test_side_models_are_mapped_or_refused(session, upstream):
    one = session()
    said(one.openai().chat.completions.create(model="small", messages=ASK, stream=True))
    assert json.loads(upstream.seen[0]["body"])["model"] == "m-1"
    assert "model:mapped" in one.exchanges[0].rewrites
    strict = session(side_models="refuse")
    with pytest.raises(openai.PermissionDeniedError, match="`small` is another model"):
        strict.openai().chat.completions.create(model="small", messages=ASK, stream=True)


def test_what_the_roster_pins_is_pinned(session, upstream):
    pinned = entry(sampling={"temperature": 0.5}, provider={"only": ["a"]})
    one = session(model=pinned)
    ask(one, temperature=1.5)
    sent = json.loads(upstream.seen[0]["body"])
    assert (sent["temperature"], sent["provider"]) == (0.5, {"only": ["a"]})
    assert {"pinned:temperature", "pinned:provider"} <= set(one.exchanges[0].rewrites)


def test_provider_tools_are_taken_out_unless_allowed(session, upstream):
    own = {"type": "function", "function": {"name": "f", "parameters": {}}}
    one = session()
    ask(one, tools=[own, {"type": "web_search"}], extra_body={"web_search_options": {}})
    sent = json.loads(upstream.seen[0]["body"])
    assert sent["tools"] == [own]
    assert "web_search_options" not in sent
    names = set(one.exchanges[0].rewrites)
    assert {"provider-tools:web_search", "provider-tools:web_search_options"} <= names
    allowed = session(allow_provider_tools=True)
    ask(allowed, tools=[own, {"type": "web_search"}])
    assert len(json.loads(upstream.seen[1]["body"])["tools"]) == 2


def test_a_provider_tool_that_is_forced_is_refused(session, upstream):
    one = session("anthropic")
    with pytest.raises(anthropic.PermissionDeniedError, match="runs at the provider"):
        one.anthropic().messages.create(
            model="m-1",
            max_tokens=5,
            messages=ASK,
            tools=[{"type": "web_search_20250305", "name": "web_search"}],
            tool_choice={"type": "tool", "name": "web_search"},
        )
    assert not upstream.seen


def test_another_model_than_asked_for_is_a_finding(session, upstream):
    upstream.answers = [(200, STREAM, chat_stream(model="vendor/m-1-20260101"))]
    one = session()
    ask(one)
    assert one.admission.findings() == ()
    upstream.answers = [(200, STREAM, chat_stream(model="m-0"))]
    ask(one)
    (found,) = one.admission.findings()
    assert (found.mechanism, found.detail) == ("served-model", "asked for `m-1`, served by `m-0`")


def test_prompt_tokens_that_stop_growing_are_a_finding(session, upstream):
    one = session()
    for size in (50_000, 100_000):
        message = [{"role": "user", "content": "x" * size}]
        said(one.openai().chat.completions.create(model="m-1", messages=message, stream=True))
    assert [found.mechanism for found in one.admission.findings()] == ["silent-truncation"]


def test_unknown_usage_makes_the_total_unknown(session, upstream):
    upstream.answers = [(200, STREAM, chat_stream(usage=False))]
    one = session()
    ask(one)
    assert one.exchanges[0].usage is None
    assert one.admission.totals().cost_usd is None


def test_redirects_are_not_followed(session, upstream):
    upstream.answers = [(302, {"Location": f"{upstream.url}/elsewhere"}, [b""])]
    one = session()
    with pytest.raises(openai.APIError):
        ask(one)
    assert {seen["path"] for seen in upstream.seen} == {"/v1/chat/completions"}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 200_000, b"\xff\xfe"])
def test_bodies_that_are_no_objects_are_refused(session, upstream, body):
    one = session()
    answer = one.post("/openai/v1/chat/completions", body)
    assert answer.status_code == 400
    assert "no JSON object" in answer.json()["error"]["message"]
    assert not upstream.seen


def test_sessions_at_once_keep_apart(session, upstream):
    sessions = [session() for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda one: [ask(one) for _ in range(4)], sessions))
    assert answers == [["hello"] * 4] * 12
    assert [len(one.exchanges) for one in sessions] == [4] * 12
    assert [sorted(e.number for e in one.exchanges) for one in sessions] == [[0, 1, 2, 3]] * 12


def test_a_session_that_hangs_up_is_kept_and_harms_nobody(session, upstream):
    more = threading.Event()

    def slow(headers):
        more.wait(10)
        return chat_stream()[1]

    upstream.answers = [(200, STREAM, [chat_stream()[0], slow, *chat_stream()[2:]])]
    kept = queue.Queue()
    one = session(record=kept.put)
    stream = one.openai().chat.completions.create(model="m-1", messages=ASK, stream=True)
    stream.close()
    one.http.close()
    exchange = kept.get(timeout=8)  # while the provider still has more to say
    assert (exchange.error, exchange.response) == ("the session hung up", chat_stream()[0])
    more.set()
    other = session()
    assert ask(other) == "hello"


def test_the_desk_answers_for_its_session(session):
    class Desk:
        def ask(self, verb, body):
            return 200, json.dumps({"verb": verb, "body": body.decode()}).encode()

    one = session(desk=Desk())
    assert one.post("/session/check", b"{}").json() == {"verb": "check", "body": "{}"}


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_the_built_in_models_answer_through_it(session, protocol):
    prompt = [{"role": "user", "content": load_task("kv-cache").prompt}]
    with ScriptedServer() as server:
        model = entry(protocol, model="oracle", base_url=None)
        one = session(protocol, model=model, base_url=server.base_url(protocol))
        if protocol == "openai":
            stream = one.openai().chat.completions.create(
                model="oracle", messages=prompt, stream=True
            )
            assert said(stream) == "I will look around first."
        else:
            with one.anthropic().messages.stream(
                model="oracle", max_tokens=1000, messages=prompt
            ) as stream:
                assert stream.get_final_message().content[-1].type == "tool_use"
    (kept,) = one.exchanges
    assert kept.usage.output_tokens > 0
    assert (kept.error, kept.cost_usd) == ("", 0.0)
