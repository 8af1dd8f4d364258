"""Stopping a worker: the set is closed, and what was spent in between is known."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import uuid

import pytest

from graders import processes
from graders.errors import SubmissionFailed
from graders.holding import Holding
from graders.running import Place, Running
from sandboxes import cgroup
from sandboxes.cgroup import Cgroup

FORKS = """
import os, time
print("on", flush=True)
for _ in range(400):
    if os.fork():
        os.wait()
        os._exit(0)
time.sleep(600)
"""


@pytest.fixture
def start():
    started = []

    def run(text):
        command = [sys.executable, "-c", text]
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append(popen)
        assert popen.stdout is not None and popen.stdout.readline() == b"on\n"
        return popen.pid

    yield run
    for popen in started:
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
        popen.stdout.close()


def test_no_process_that_is_forked_meanwhile_runs_on(start):
    root = start(FORKS)
    held = processes.hold(lambda: processes.below(root))
    assert held is not None
    tree = processes.tree(root)
    assert {line.pid for line in tree} == held.pids
    assert {line.state for line in tree} <= set("TtZ")


def test_a_process_that_was_listed_late_is_stopped_too(start):
    one, other = start(QUIET), start(QUIET)
    listings = iter([[one], [one, other], [one, other]])
    held = processes.hold(lambda: next(listings))
    assert held is not None and held.pids == {one, other}
    assert {*processes.thread_states(other).values()} == {"T"}


QUIET = "import time\nprint('on', flush=True)\ntime.sleep(600)"


def test_a_tree_that_never_stops_growing_is_told(start):
    pids = iter(range(1 << 30, 1 << 31))
    assert processes.hold(lambda: [next(pids)], patience_s=0.05) is None


def test_what_is_spent_between_two_stops_is_counted(start):
    root = start("import time\nprint('on', flush=True)\nwhile True: pass")
    holding = Holding(root, (), one_core=False)
    holding.stop()
    before = processes.spent([root])
    while processes.spent([root]).cpu_s < before.cpu_s + 0.1:
        holding.let_go()
        holding.stop()
    window = holding.take()
    assert 0.1 <= window.cpu_s <= window.wall_s + 0.02
    assert 0 <= window.lost_s <= window.wall_s - window.cpu_s + 1e-9
    assert holding.take().cpu_s == 0


UNAWAITED = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
print("on", flush=True)
for _ in range(4):
    reading, writing = os.pipe()
    if os.fork() == 0:
        while time.process_time() < 0.1: pass
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
print("done", flush=True)
time.sleep(600)
"""


def test_children_that_nobody_awaits_are_counted():
    group = cgroup.make_counting(f"test-{uuid.uuid4().hex}")
    if group is None:
        pytest.skip("no cgroup v2 that we may write here")
    command = [sys.executable, "-c", UNAWAITED, str(group.procs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as popen:
        try:
            assert popen.stdout is not None and popen.stdout.readline() == b"on\n"
            holding = Holding(popen.pid, (), one_core=False, counted_s=group.cpu_s)
            holding.stop()
            holding.take()
            holding.let_go()
            assert popen.stdout.readline() == b"done\n"
            by_its_word = processes.spent([popen.pid])
            holding.stop()
            assert by_its_word.cpu_s < 0.3 < holding.take().cpu_s
        finally:
            group.remove()
    assert not group.path.exists()


def test_sleep_between_timed_calls_saves_up_no_cpu_time_for_them(start):
    figures = (step // 2 / 10 for step in itertools.count(1))  # it grows at every second stop
    holding = Holding(start(QUIET), (), one_core=True, counted_s=lambda: next(figures))
    holding.stop()
    with pytest.raises(SubmissionFailed, match="given one core") as failure:
        for _ in range(20):
            holding.let_go()  # a call that spends 0.1 s in less
            holding.stop()
            holding.take_call()
            holding.let_go()  # sleep that spends nothing
            threading.Event().wait(0.15)
            holding.stop()
            holding.take()
    assert failure.value.result == "tampered"


def test_memfds_count_once_however_many_processes_hold_them(start):
    root = start("""
import mmap, os, time
mapped, written = os.memfd_create("mapped"), os.memfd_create("written")
os.ftruncate(mapped, 8 << 20)
pages = mmap.mmap(mapped, 8 << 20)
pages[:] = b"x" * (8 << 20)
os.write(written, bytes(4 << 20))
for _ in range(3):
    if os.fork() == 0: break
else: print("on", flush=True)
time.sleep(600)
""")
    pids = processes.below(root)
    assert len(pids) == 4 and processes.shared_bytes(pids) == 12 << 20


def test_memory_that_is_mapped_and_not_held_open_is_seen(start):
    root = start("""
import mmap, time
pages = mmap.mmap(-1, 8 << 20)
pages[:] = b"x" * (8 << 20)
print("on", flush=True)
time.sleep(600)
""")
    assert 8 << 20 <= processes.shared_bytes([root]) < 9 << 20


def test_a_worker_has_one_core_and_with_a_gpu_all_but_the_first(monkeypatch):
    monkeypatch.setattr(processes, "OUR_CORES", frozenset({3, 4, 7}))
    assert processes.cores_for("cpu", 4) == {4}
    assert processes.cores_for("cpu", -1) < {3, 4, 7} and len(processes.cores_for("cpu", -1)) == 1
    assert processes.cores_for("GPU-x", -1) == processes.cores_for("GPU-x", 7) == {4, 7}
    monkeypatch.setattr(processes, "OUR_CORES", frozenset({3}))
    assert processes.cores_for("GPU-x", -1) == {3}


def test_a_kill_for_memory_is_told_from_other_kills(start, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) as popen:
        where = Place("/grading/submission", ("numpy",), "cpu")
        running = Running(popen, "mark", True, where, Cgroup(tmp_path))
        (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\n")
        assert running.ended().result == "crash" and "SIGKILL" in str(running.ended())
        (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
        assert running.ended().result == "memory"
