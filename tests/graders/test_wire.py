"""Frames: what a hostile other side can send, and how each is told."""

import json
import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from graders.worker import wire
from graders.worker.wire import WireBroken, receive_frame, send_frame


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def how(sock, deadline_s=1.0):
    with pytest.raises(WireBroken) as caught:
        receive_frame(sock, time.monotonic() + deadline_s)
    return caught.value.how


def test_a_frame_and_its_descriptors_arrive(pair):
    ours, theirs = pair
    read, write = os.pipe()
    send_frame(theirs, {"ok": "call", "n": 3}, (write,))
    frame, fds = receive_frame(ours)
    os.write(fds[0], b"x")
    assert frame == {"ok": "call", "n": 3} and os.read(read, 1) == b"x"
    for fd in (read, write, *fds):
        os.close(fd)


def test_a_frame_in_single_bytes_arrives(pair):
    ours, theirs = pair
    body = json.dumps({"ok": 1}).encode()

    def trickle():
        for byte in struct.pack(">I", len(body)) + body:
            theirs.send(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    assert receive_frame(ours)[0] == {"ok": 1}
    thread.join()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "timeout"),
        (b"\x00\x00", "timeout"),
        (struct.pack(">I", 5) + b"hello", "garbage"),
        (struct.pack(">I", 2) + b"[]", "garbage"),
        (struct.pack(">I", 2) + b"\xff\xfe", "garbage"),
        (struct.pack(">I", 200_000) + b"[" * 200_000, "garbage"),
        (struct.pack(">I", wire.MAX_HEADER_BYTES + 1), "oversize"),
        (b"\xff\xff\xff\xff", "oversize"),
    ],
)
def test_what_is_no_frame_is_told(data, word, pair):
    ours, theirs = pair
    theirs.sendall(data)
    assert how(ours, 0.2) == word


def test_a_closed_socket_is_told(pair):
    ours, theirs = pair
    theirs.sendall(b"\x00\x00\x00\x09{")
    theirs.close()
    assert how(ours) == "closed"
    with pytest.raises(WireBroken, match="cannot send"):
        send_frame(ours, {})


def test_descriptors_of_a_broken_frame_are_closed(pair):
    ours, theirs = pair
    before = len(list(Path("/proc/self/fd").iterdir()))
    socket.send_fds(theirs, [struct.pack(">I", 3) + b"no!"], [theirs.fileno()] * 3)
    assert how(ours) == "garbage"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_too_large_a_frame_is_not_sent(pair):
    with pytest.raises(WireBroken, match="frame of"):
        send_frame(pair[0], {"x": "y" * wire.MAX_HEADER_BYTES})
