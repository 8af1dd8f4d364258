"""The wire beside a transcript: exact, and no larger than what is new in it."""

import json
import random

import pytest

from transcripts.errors import Corrupt
from transcripts.native import LIVE, MOST_BYTES, NativeLog, native_log, pack
from transcripts.redact import Secrets
from transcripts.wire import KEY_EVERY, Passed, WireFolder


def conversation(steps):
    """Requests that repeat their past, as those of agents do."""
    noise = random.Random(1)
    messages = []
    for step in range(steps):
        messages.append({"n": step, "text": noise.randbytes(1000).hex()})
        body = json.dumps(messages).encode()
        yield Passed({"n": step}, body, b"" if step % 2 else body, b"answer %d" % step)


def test_every_exchange_comes_back_as_it_was(tmp_path):
    given = list(conversation(2 * KEY_EVERY + 3))
    folder = WireFolder(tmp_path)
    for one in given:
        folder.put(one)
    assert list(WireFolder(tmp_path).exchanges()) == given


def test_kept_bytes_grow_with_what_is_new(tmp_path):
    folder, raw = WireFolder(tmp_path), 0
    for one in conversation(KEY_EVERY):
        folder.put(one)
        raw += len(one.received) + len(one.sent)
    kept = sum(path.stat().st_size for path in folder.path.iterdir())
    assert kept < raw / 20


def test_writing_goes_on_where_another_process_stopped(tmp_path):
    first, second, third = conversation(3)
    before = WireFolder(tmp_path)
    before.put(first)
    before.put(second)
    WireFolder(tmp_path).put(third)
    assert [one.facts["n"] for one in WireFolder(tmp_path).exchanges()] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"no frame", None])
def test_damage_is_said_with_its_file(tmp_path, damage):
    folder = WireFolder(tmp_path)
    for one in conversation(2):
        folder.put(one)
    path = folder.path / "000001.zst"
    path.write_bytes(path.read_bytes()[:-7] if damage is None else damage)
    with pytest.raises(Corrupt, match="000001"):
        list(WireFolder(tmp_path).exchanges())


def test_a_native_log_is_followed_live_and_packed_without_secrets(tmp_path):
    log = NativeLog(tmp_path, Secrets({"KEY": "a-long-secret"}))
    log.write(b"one\n")
    assert (tmp_path / LIVE).read_bytes() == b"one\n"
    log.write(b"a-long-secret\n")
    assert log.finish() == native_log(tmp_path) == b"one\n[secret KEY]\n"
    assert not (tmp_path / LIVE).exists()


def test_a_native_log_of_a_dead_process_is_packed_later(tmp_path):
    assert pack(tmp_path, Secrets()) == native_log(tmp_path) == b""
    (tmp_path / LIVE).write_bytes(b"left")
    assert pack(tmp_path, Secrets()) == native_log(tmp_path) == b"left"


def test_a_native_log_has_an_end(tmp_path, monkeypatch):
    assert MOST_BYTES >= 1 << 20
    monkeypatch.setattr("transcripts.native.MOST_BYTES", 10)
    log = NativeLog(tmp_path, Secrets())
    for _ in range(3):
        log.write(b"12345678")
    said = log.finish()
    assert said.startswith(b"1234567812\n[the log was cut here")
    assert said.count(b"cut here") == 1
