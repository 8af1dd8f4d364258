"""Submissions that attack the grader: each ends in the right word, and the next grade is right."""

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


WIRE = """
def ends():
    for thing in gc.get_objects():
        if type(thing).__name__ == "Worker":
            return thing.questions, thing.answers

def answer(body):
    os.write(ends()[1], len(body).to_bytes(4, "big") + body)
"""

LIE = """
leaf = {"name": "y", "dtype": DTYPE, "shape": SHAPE, "offset": 0}
answer(json.dumps({"ok": "call", "n": 1, "outputs": [leaf]}).encode())
time.sleep(600)
"""


def lie(dtype, shape):
    """A submission that answers in the worker's name."""
    return attack(LIE.replace("DTYPE", dtype).replace("SHAPE", shape), WIRE)


FORGED = """answer(b'{"ok": "call", "n": 1, "outputs": []}')"""

FLOOD = """
def flood():
    while True: answer(b'{"ok": "call", "n": 1, "outputs": []}')
threading.Thread(target=flood, daemon=True).start()
"""

HALF = """
os.write(ends()[1], (1 << 20).to_bytes(4, "big") + bytes(1000))
time.sleep(600)
"""

STOLEN = """
thief = os.open(f"/proc/self/fd/{ends()[1]}", os.O_RDONLY)
def steal():
    while True: os.read(thief, 1)
threading.Thread(target=steal, daemon=True).start()
time.sleep(600)
"""

MEMFDS = """
hoard = [os.memfd_create("hoard") for _ in range(24)]
for fd in hoard: os.write(fd, bytes(1 << 26))
time.sleep(600)
"""

ATTACKS = {
    "exits 0 and prints PASS": (attack("print('PASS', flush=True)\nos._exit(0)"), "crash"),
    "exits politely": (attack("sys.exit(0)"), "crash"),
    "exits 0 at import": (
        "print('PASS')\nimport os\nos._exit(0)\n\ndef row_sum(x, s): ...\n",
        "crash",
    ),
    "kills itself": (attack("os.kill(os.getpid(), signal.SIGKILL)"), "crash"),
    "dereferences null": (attack("ctypes.string_at(0)"), "crash"),
    "hangs": (attack("while True: pass"), "timeout"),
    "hangs at import": ("while True: pass\n\ndef row_sum(x, scale): ...\n", "timeout"),
    "sleeps through signals": (
        attack("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(600)"),
        "timeout",
    ),
    "fork bomb": (attack("while True:\n    try: os.fork()\n    except OSError: pass"), "timeout"),
    "memory bomb": (attack("hoard = [np.zeros(1 << 24) for _ in range(1000)]"), "memory"),
    "memory bomb of memfds": (attack(MEMFDS), "memory"),
    "memory bomb of memfds in a child": (
        attack(f"if os.fork() == 0:{MEMFDS.replace(chr(10), chr(10) + '    ')}\nos.wait()"),
        "memory",
    ),
    "recursion": (attack("row_sum(x, scale)"), "crash"),
    "garbage on the pipe": (
        attack("os.write(ends()[1], b'\\x00\\x00\\x00\\x04haha')", WIRE),
        "tampered",
    ),
    "a frame of 4 GB": (attack("os.write(ends()[1], b'\\xff' * 64)", WIRE), "tampered"),
    "a forged answer": (attack(FORGED, WIRE), "tampered"),
    "a flood of answers": (attack(FLOOD, WIRE), "tampered"),
    "a pipe full of zeros": (attack("os.write(ends()[1], bytes(1 << 16))", WIRE), "tampered"),
    "half an answer": (attack(HALF, WIRE), "timeout"),
    "reads its own pipe": (attack(STOLEN, WIRE), None),
    "deep JSON": (attack("answer(b'[' * 60000)", WIRE), "tampered"),
    "an infinite shape": (lie("'float32'", "[float('inf')]"), "tampered"),
    "a dtype that is no Python": (lie("'(1,,2)f4,f4'", "[2]"), "tampered"),
    "more elements than numbers": (lie("'float32'", "[10**30, 0]"), "tampered"),
    "a nested dtype": (lie("eval('[' * 90 + ']' * 90)", "[2]"), "tampered"),
    "1500 elif": (
        attack("pass", "if sys.argv == 0: pass\n" + "elif sys.argv == 1: pass\n" * 1500),
        "pass",
    ),
    "a chain of 900 attributes": (attack("if len(x) < 0: x" + ".a" * 900 + "()"), "pass"),
    "an exception that cannot be shown": (
        attack(
            "raise Hidden",
            "class Hidden(Exception):\n    def __str__(self): raise RuntimeError",
        ),
        "crash",
    ),
    "an error that is no text": (attack("raise ValueError('\\ud800 \\x1b[2J')"), "crash"),
    "complex numbers": (attack("return scale * x.sum(axis=1) + 0j"), "wrong"),
    "writes to the socket of the questions": (attack("ends()[0].send(b'x')", WIRE), "crash"),
    "sends descriptors": (attack("socket.send_fds(ends()[0], [b'x'], [1] * 200)", WIRE), "crash"),
    "closes the pipe": (attack("os.close(ends()[1])", WIRE), "crash"),
    "closes the pipe and waits": (attack("os.close(ends()[1])\ntime.sleep(600)", WIRE), "crash"),
    "closes the socket": (attack("ends()[0].close()", WIRE), "crash"),
    "closes every descriptor": (attack("os.closerange(0, 256)"), "crash"),
    "shuts the socket down and waits": (
        attack("ends()[0].shutdown(socket.SHUT_RDWR)\ntime.sleep(600)", WIRE),
        "timeout",
    ),
    "never blocks on its pipe": (attack("os.set_blocking(ends()[1], False)", WIRE), "pass"),
    "output beyond its room": (attack("return np.zeros(1 << 22, np.float32)"), "wrong"),
    "NaN": (attack("return x.sum(axis=1) * np.float32('nan')"), "nan"),
    "wrong dtype": (attack("return scale * x.sum(axis=1, dtype=np.float64)"), "wrong"),
    "wrong shape": (attack("return (scale * x.sum(axis=1))[:, None]"), "wrong"),
    "Python objects": (attack("return np.array([object()] * len(x))"), "wrong"),
    "nothing returned": (attack("return None"), "wrong"),
    "an array that equals anything": (
        attack(
            "return (scale * x.sum(axis=1)).view(Equal)",
            "class Equal(np.ndarray):\n    def __eq__(self, other): return np.True_",
        ),
        "wrong",
    ),
    "changes its input": (attack("x *= 1\nx[0] = 0\nreturn scale * x.sum(axis=1)"), "wrong"),
    "changes its input after use": (
        attack("y = scale * x.sum(axis=1)\nx[:] = 0\nreturn y"),
        "wrong",
    ),
    "returns a view of its input": (
        attack("x[:, 0] = scale * x.sum(axis=1)\nreturn x[:, 0]"),
        "wrong",
    ),
    "patches the comparison": (
        attack(
            "return x[:, 0]",
            "np.allclose = np.array_equal = lambda *a, **k: True\ntime.perf_counter = lambda: 0.0",
        ),
        "wrong",
    ),
    "caches by address": (
        attack(
            "key = x.ctypes.data\nif key not in kept: kept[key] = scale * x.sum(axis=1)\n"
            "if kept[key].shape == x.shape[:1]: return kept[key]",
            "kept = {}",
        ),
        "wrong",
    ),
    "returns what it has not filled": (attack("return np.empty(len(x), np.float32)"), None),
    "ignores the seed of the heap": (attack("y = np.empty(len(x), x.dtype)\nreturn y"), None),
    "imports what is forbidden": (attack("pass", "import torch"), "forbidden"),
    "calls what is forbidden": (attack("return scale * np.einsum('rn->r', x)"), "forbidden"),
    "no Python": ("def row_sum(x, scale)\n    return x\n", "import"),
    "raises at import": ("raise RuntimeError('no')\n\ndef row_sum(x, scale): ...\n", "import"),
    "imports what is not there": (attack("pass", "import pandas"), "import"),
    "a compiler that fails": (
        attack("pass", "import subprocess\nsubprocess.run(['gcc', 'none.c'], check=True)"),
        "build",
    ),
}
"""Name -> (text, word). A word of None: any failure will do."""


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_in_its_word_and_harms_nothing_else(name, grade):
    text, word = ATTACKS[name]
    found = grade(text)
    assert found.result != "pass" if word is None else found.result == word, found.message
    assert found.model_dump_json().encode() and "\x1b" not in found.message
    assert [line.name for line in processes.tree(os.getpid())[1:]] == []
    assert grade("oracle").result == "pass"


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


def test_a_busy_thread_left_behind_is_seen(grade):
    head = """
def spin():
    while True: hashlib.pbkdf2_hmac("sha256", b"", b"", 100000)  # without the interpreter's lock
"""
    body = """
if threading.active_count() < 9: threading.Thread(target=spin, daemon=True).start()
"""
    assert "process:left-behind" in failed(grade(attack(body, head)))


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
