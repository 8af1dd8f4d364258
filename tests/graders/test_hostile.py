"""Submissions that attack the grader, and what the grade tells; `tests/zoo` holds the table."""

import os

import pytest

from graders import processes

HONEST = "    return scale * x.sum(axis=1)\n"


def attack(body: str, head: str = "") -> str:
    """A submission whose ``row_sum`` starts with ``body``."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    imports = "import ctypes, gc, hashlib, json, os, signal, socket, sys, threading, time\n"
    imports += "import numpy as np\n"
    return f"{imports}{head}\n\ndef row_sum(x, scale):\n{lines}{HONEST}"


def failed(found):
    return {check.mechanism for check in found.checks if check.passed is False}


def test_a_thread_that_writes_late_is_seen(grade):
    head = """
def later(y, value):
    time.sleep(0.01)
    for thing in gc.get_objects():
        if type(thing).__name__ == "Worker":
            np.frombuffer(thing.maps[1], np.float32)[: len(y)] = value
"""
    body = """
y = scale * x.sum(axis=1)
threading.Thread(target=later, args=(y, y + 1), daemon=True).start()
return y
"""
    assert "timing:late-write" in failed(grade(attack(body, head)))


def test_a_cache_by_content_is_seen_and_gains_nothing_in_timing(grade):
    head = """
kept = {}
def slow(x, scale):
    for _ in range(400):
        y = scale * x.sum(axis=1)
    return y
"""
    body = """
key = x.tobytes()
if key not in kept: kept[key] = slow(x, scale)
return kept[key].copy()
"""
    found = grade(attack(body, head), correctness_only=False)
    honest = grade(attack("return slow(x, scale)", head), correctness_only=False)
    assert "cache:content" in failed(found) and "cache:content" not in failed(honest)
    assert found.result == "pass"  # right results; what the finding means is for the audit
    for cached, plain in zip(found.timings, honest.timings, strict=True):
        assert cached.median_ms > plain.median_ms / 3


@pytest.mark.parametrize("isolation", ["bubblewrap", "process"])
def test_a_daemon_left_behind_is_seen_and_killed(isolation, grade):
    body = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
"""
    before = {line.pid for line in processes.process_table() if "python" in line.name}
    found = grade(attack(body), isolation=isolation)
    assert "process:left-behind" in failed(found)
    mark = "GRADING_MARK="
    left = [pid for pid in processes.marked(mark) if pid not in before and sleeps(pid)]
    assert left == []


def sleeps(pid):
    """True for a process that lives on without a parent of ours: what a daemon looks like."""
    return any(line.pid == pid and line.parent == 1 for line in processes.process_table())


def test_taking_more_cores_than_given_is_tampering(grade):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    found = grade(attack("os.sched_setaffinity(0, range(64))"), correctness_only=False)
    assert found.result == "tampered" and "cores" in found.message


@pytest.mark.alone
def test_cores_taken_within_a_call_and_given_back_are_tampering(grade):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    head = """
def spin(n):
    if n % 2: os.sched_setaffinity(0, {*range(64)} - os.sched_getaffinity(0))
    hashlib.pbkdf2_hmac("sha256", b"", b"", 40000)  # without the interpreter's lock
"""
    body = """
threads = [threading.Thread(target=spin, args=(n,)) for n in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    for _ in range(6):  # where others use the second core, there is nothing to be taken
        found = grade(attack(body, head), correctness_only=False)
        if found.result == "tampered":
            break
    assert found.result == "tampered" and "given one core" in found.message


def test_no_timing_goes_unverified_however_the_dice_fall(grade, monkeypatch):
    """Right in the first calls of each shape, which are checked before the clock counts."""
    head = "calls = {}"
    body = """
calls[x.shape] = calls.get(x.shape, 0) + (x.size > 60000)
if calls[x.shape] > 12: return x[:, 0].copy()
"""
    monkeypatch.setattr("secrets.randbelow", lambda n: 0)
    found = grade(attack(body, head), correctness_only=False)
    assert found.result == "wrong"


def test_a_wrong_result_in_timed_calls_only_is_wrong(grade):
    """Sizes of the smoke shapes and the cases are computed right, scored ones only at first."""
    head = "calls = [0]"
    body = """
calls[0] += x.size > 60000
if calls[0] > 12: return x[:, 0].copy()
"""
    found = grade(attack(body, head), correctness_only=False)
    assert found.result == "wrong"
    assert [line.group for line in found.correctness if not line.passed] == ["timed"]


def test_what_a_submission_prints_means_nothing_and_is_kept(grade):
    found = grade(attack("return x[:, 0]", "print('PASS 100/100')"))
    assert found.result == "wrong" and "PASS 100/100" in found.log_tail


def test_flooding_the_log_is_bounded(grade):
    found = grade(attack("print('x' * 1000000)"))
    assert found.result == "pass" and len(found.log_tail) <= 16384


def test_the_referee_cannot_be_read_through_proc(grade):
    body = """
for pid in os.listdir('/proc'):
    if pid.isdigit() and int(pid) not in (1, os.getpid(), os.getppid()):
        return x[:, 0]
try: open(f'/proc/{os.getppid()}/mem', 'rb').read(1); return x[:, 0]
except OSError: pass
"""
    assert grade(attack(body)).result == "pass"  # it found nobody else


@pytest.mark.parametrize(("right_when", "word"), [("> 1", "wrong"), ("== 1", "pass")])
def test_the_number_of_cores_does_not_tell_a_check_from_a_timing(grade, right_when, word):
    text = f"""
import os
RIGHT = len(os.sched_getaffinity(0)) {right_when}

def row_sum(x, scale):
    return scale * x.sum(axis=1) + (not RIGHT)
"""
    assert grade(text).result == word
