"""Stopping a worker: the set is closed, and what was spent in between is known."""

import os
import signal
import subprocess
import sys

import pytest

from graders import processes
from graders.holding import Holding

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
    holding = Holding(root, (), -1)
    holding.stop()
    before = processes.spent([root])
    while processes.spent([root]).cpu_s < before.cpu_s + 0.1:
        holding.let_go()
        holding.stop()
    window = holding.take()
    assert 0.1 <= window.cpu_s <= window.wall_s + 0.02
    assert 0 <= window.lost_s <= window.wall_s - window.cpu_s + 1e-9
    assert holding.take().cpu_s == 0
