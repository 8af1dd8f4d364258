"""Frames: what a hostile other side can send, and how each is told."""

import json
import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from graders.channel import Channel
from graders.worker import wire
from graders.worker.wire import (
    WireBroken,
    receive_answer,
    receive_question,
    send_answer,
    send_question,
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def pipe():
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "wb", buffering=0) as writer:
        yield ours, writer


@pytest.fixture
def channel():
    """The referee's ends, and the worker's."""
    made = Channel()
    with made.of_the_worker() as (questions, answers):
        ends = socket.socket(fileno=os.dup(questions)), os.dup(answers)
    with ends[0], os.fdopen(ends[1], "wb", buffering=0):
        yield made, *ends
    made.close()


def how(fd, deadline_s=1.0):
    with pytest.raises(WireBroken) as caught:
        receive_answer(fd, time.monotonic() + deadline_s)
    return caught.value.how


@pytest.mark.parametrize("count", [0, 1, wire.MAX_DESCRIPTORS])
def test_a_question_and_its_descriptors_arrive(count, pair):
    ours, theirs = pair
    read, write = os.pipe()
    send_question(ours, {"op": "call", "n": 3}, (write,) * count)
    frame, fds = receive_question(theirs)
    assert frame == {"op": "call", "n": 3} and len(fds) == count
    for fd in fds:
        os.write(fd, b"x")
    os.close(write)
    for fd in fds:
        os.close(fd)
    assert os.read(read, 99) == b"x" * count
    os.close(read)


def test_an_answer_in_single_bytes_arrives(pipe):
    ours, theirs = pipe
    body = json.dumps({"ok": 1}).encode()

    def trickle():
        for byte in struct.pack(">I", len(body)) + body:
            theirs.write(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    assert receive_answer(ours, time.monotonic() + 10) == {"ok": 1}
    thread.join()


def test_an_answer_larger_than_the_pipe_arrives_and_no_byte_behind_it_is_taken(pipe):
    ours, theirs = pipe
    large = {"ok": "x" * 500_000}

    def answer():
        send_answer(theirs.fileno(), large)
        theirs.write(b"behind")

    thread = threading.Thread(target=answer)
    thread.start()
    assert receive_answer(ours, time.monotonic() + 10) == large
    thread.join()
    assert os.read(ours, 99) == b"behind"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "timeout"),
        (b"\x00\x00", "timeout"),
        (struct.pack(">I", 5) + b"hello", "garbage"),
        (struct.pack(">I", 2) + b"[]", "garbage"),
        (struct.pack(">I", 2) + b"\xff\xfe", "garbage"),
        (struct.pack(">I", 60_000) + b"[" * 60_000, "garbage"),
        (struct.pack(">I", wire.MAX_HEADER_BYTES + 1), "oversize"),
        (b"\xff\xff\xff\xff", "oversize"),
        (bytes(65536), "garbage"),  # a full pipe
    ],
)
def test_what_is_no_frame_is_told(data, word, pipe):
    ours, theirs = pipe
    theirs.write(data)
    assert how(ours, 0.2) == word


def test_a_closed_pipe_is_told(pipe):
    ours, theirs = pipe
    theirs.write(b"\x00\x00\x00\x09{")
    theirs.close()
    assert how(ours) == "closed"


def test_an_answer_that_was_stolen_from_the_pipe_is_waited_for_no_longer_than_the_deadline(pipe):
    ours, theirs = pipe
    stop = threading.Event()

    def steal():
        with Path(f"/proc/self/fd/{ours}").open("rb", buffering=0) as thief:
            os.set_blocking(thief.fileno(), False)
            while not stop.is_set():
                theirs.write(b"x")
                thief.read(1)

    thread = threading.Thread(target=steal)
    thread.start()
    try:
        assert how(ours, 0.2) in ("timeout", "oversize")
    finally:
        stop.set()
        thread.join()


def test_a_closed_socket_is_told(pair):
    ours, theirs = pair
    theirs.close()
    with pytest.raises(WireBroken, match="cannot send"):
        send_question(ours, {})


def test_a_worker_that_reads_no_questions_holds_nobody(channel):
    ours, _questions, _answers = channel
    with pytest.raises(WireBroken) as caught:
        for _ in range(100):
            ours.ask({"x": "y" * 100_000}, (), time.monotonic() + 0.05)
    assert caught.value.how == "timeout"


def test_too_large_a_frame_is_not_sent(pair):
    with pytest.raises(WireBroken, match="a frame of"):
        send_question(pair[0], {"x": "y" * wire.MAX_HEADER_BYTES})
    with pytest.raises(WireBroken, match="descriptors"):
        send_question(pair[0], {}, (0,) * (wire.MAX_DESCRIPTORS + 1))


@pytest.mark.parametrize("rights", [[], [0], [0] * 200])
def test_nothing_can_be_written_to_the_referees_socket(rights, channel):
    _, questions, _ = channel
    with pytest.raises(BrokenPipeError):
        socket.send_fds(questions, [b"x"], rights)


def test_an_answer_that_waits_is_seen_before_it_is_read(channel):
    ours, _, answers = channel
    assert not ours.has_answer()
    send_answer(answers, {"ok": "early"})
    assert ours.has_answer()
    assert ours.answer(time.monotonic() + 1) == {"ok": "early"}
    assert not ours.has_answer()
