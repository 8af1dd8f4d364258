"""Ends of calls at the gateway: sessions that are over, answers without end, permits."""

import threading
import time

import openai
import pytest

from orchestrator.gateway import relay
from orchestrator.models.accounts import Account
from providers import JSON, STREAM, chat_stream

ASK = [{"role": "user", "content": "hi"}]


def stream(session):
    return session.openai().chat.completions.create(model="m-1", messages=ASK, stream=True)


def said(answer):
    return "".join(c.choices[0].delta.content or "" for c in answer if c.choices)


class Held:
    """A stream that stops after its first event until it is let go."""

    def __init__(self):
        self.go = threading.Event()
        first, *rest = chat_stream()
        self.parts = [first, lambda _: self._wait(rest[0]), *rest[1:]]

    def _wait(self, part):
        self.go.wait(30)
        return part


@pytest.fixture
def held():
    made = Held()
    yield made
    made.go.set()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.01)


def test_the_end_of_a_session_cuts_its_open_stream_and_keeps_it(session, upstream, held):
    upstream.answers = [(200, STREAM, held.parts)]
    one, failed = session(), []

    def listen():
        try:
            said(stream(one))
        except Exception as error:  # the SDK's own kinds of a broken connection
            failed.append(error)

    listener = threading.Thread(target=listen)
    listener.start()
    until(lambda: upstream.seen)
    until(lambda: one.admission.open_calls)
    one.admission.close()
    (kept,) = one.exchanges  # `close` has waited for it
    assert (kept.status, kept.error_kind) == (200, "hung_up")
    listener.join(20)
    assert failed, "the session heard nothing of its end"
    assert not held.go.is_set()


def test_the_end_of_a_session_ends_its_wait_for_another_try(session, upstream):
    upstream.answers = [(429, {**JSON, "Retry-After": "600"}, [b"{}"])]
    one, told = session(), []

    def ask():
        with pytest.raises(openai.PermissionDeniedError) as refused:
            stream(one)
        told.append(refused)

    asker = threading.Thread(target=ask)
    asker.start()
    until(lambda: upstream.seen)
    one.admission.close()
    asker.join(20)
    assert told
    assert [kept.error_kind for kept in one.exchanges] == ["hung_up"]


def test_an_answer_without_end_breaks_off(session, upstream, monkeypatch):
    monkeypatch.setattr(relay, "MOST_ANSWER_BYTES", 2000)
    upstream.answers = [(200, STREAM, [*chat_stream("x" * 900)[:1] * 5, *chat_stream()])]
    one = session()
    with pytest.raises(Exception):  # noqa: B017 - the SDK's own kinds of a broken connection
        said(stream(one))
    (kept,) = one.exchanges
    assert "longer than 2000 bytes" in kept.error
    assert len(kept.response) < 4000


@pytest.mark.parametrize("cut", [[*chat_stream()[:1], None], chat_stream()[:1]])
def test_broken_answers_are_asked_again_outside_where_only_whole_ones_pass(session, upstream, cut):
    upstream.answers = [(200, STREAM, cut), (200, STREAM, chat_stream())]
    one = session(whole_answers=True)
    assert said(stream(one)) == "hello"
    (kept,) = one.exchanges
    assert [notice.error for notice in kept.tries] == ["dropped_stream"]
    assert kept.response == b"".join(chat_stream())
    assert kept.error == ""


def test_sessions_of_an_account_share_its_permits(session, upstream, held):
    account = Account("a", start=1)
    upstream.answers = [(200, STREAM, held.parts), (200, STREAM, chat_stream())]
    one, other = session(account=account), session(account=account)
    heard = []
    threads = [
        threading.Thread(target=lambda each=each: heard.append(said(stream(each))))
        for each in (one, other)
    ]
    threads[0].start()
    until(lambda: upstream.seen)
    threads[1].start()
    until(lambda: account.load().waiting == 1)
    assert len(upstream.seen) == 1
    held.go.set()
    for thread in threads:
        thread.join(20)
    assert heard == ["hello", "hello"]
    assert (account.load().in_flight, account.load().waiting) == (0, 0)


def test_a_refusal_is_news_for_the_whole_account(session, upstream):
    account = Account("a", start=4)
    upstream.answers = [
        (429, {**JSON, "Retry-After": "0"}, [b"{}"]),
        (200, STREAM, chat_stream()),
    ]
    assert said(stream(session(account=account))) == "hello"
    load = account.load()
    assert (load.refusals, load.in_flight) == (1, 0)
    assert load.permits < 4
