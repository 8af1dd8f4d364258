"""Graders that wait beside each other on one GPU know each other, and forget who has died."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from graders.fellows import fellows, join
from sandboxes.lease import lease_path

ROOT = Path(__file__).parents[2]
JOIN = """
import sys
from graders.fellows import join
for line in sys.stdin:
    join(sys.argv[1])
    print("joined", flush=True)
"""

TAKE_ANOTHERS_PLACE = """
import fcntl, os, sys
from graders.fellows import fellows
from sandboxes.lease import open_lock_file
held = open_lock_file(f"{sys.argv[1]}.graders")
fcntl.lockf(held, fcntl.LOCK_EX, 1, os.getppid())
print("taken", flush=True)
sys.stdin.readline()
print(fellows(sys.argv[1]) == {os.getppid()}, flush=True)
"""


@pytest.fixture
def gpu():
    name = f"GPU-test-{uuid.uuid4().hex}"
    yield name
    lease_path(f"{name}.graders").unlink()


def grader(gpu: str, code: str = JOIN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, gpu],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def joined(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("join\n")
    process.stdin.flush()
    assert process.stdout.readline() == "joined\n"
    return process


def test_graders_of_one_gpu_know_each_other_while_they_live(gpu):
    assert fellows(gpu) == frozenset()
    join(gpu)
    assert fellows(gpu) == frozenset(), "who asks is no fellow of its own"
    one, another = joined(grader(gpu)), joined(grader(gpu))
    assert fellows(gpu) == {one.pid, another.pid}
    one.kill()
    one.communicate()
    assert fellows(gpu) == {another.pid}
    another.kill()
    another.communicate()
    assert fellows(gpu) == frozenset()


@pytest.mark.parametrize("turned", [False, True])
def test_all_are_known_in_whatever_order_they_joined(gpu, turned):
    started = sorted((grader(gpu) for _ in range(4)), key=lambda process: process.pid)
    for process in reversed(started) if turned else started:
        joined(process)
    assert fellows(gpu) == {process.pid for process in started}
    for process in started:
        process.kill()
        process.communicate()


def test_who_finds_its_place_taken_joins_beside_it(gpu):
    """As where another pid namespace has a process of the same number."""
    other = grader(gpu, TAKE_ANOTHERS_PLACE)
    assert other.stdout is not None
    assert other.stdout.readline() == "taken\n"
    join(gpu)
    told, _ = other.communicate("look\n")
    assert told == "True\n"


def test_graders_of_another_gpu_are_strangers(gpu):
    process = joined(grader(gpu))
    other = f"{gpu}-other"
    try:
        assert fellows(other) == frozenset()
    finally:
        process.kill()
        process.communicate()
        lease_path(f"{other}.graders").unlink()
