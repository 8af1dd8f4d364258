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
join(sys.argv[1])
print("joined", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def gpu():
    name = f"GPU-test-{uuid.uuid4().hex}"
    yield name
    lease_path(f"{name}.graders").unlink()


def joined(gpu: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", JOIN, gpu],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "joined\n"
    return process


def test_graders_of_one_gpu_know_each_other_while_they_live(gpu):
    assert fellows(gpu) == frozenset()
    join(gpu)
    assert fellows(gpu) == frozenset(), "who asks is no fellow of its own"
    one, another = joined(gpu), joined(gpu)
    assert fellows(gpu) == {one.pid, another.pid}
    one.kill()
    one.communicate()
    assert fellows(gpu) == {another.pid}
    another.kill()
    another.communicate()
    assert fellows(gpu) == frozenset()


def test_graders_of_another_gpu_are_strangers(gpu):
    process = joined(gpu)
    other = f"{gpu}-other"
    try:
        assert fellows(other) == frozenset()
    finally:
        process.kill()
        process.communicate()
        lease_path(f"{other}.graders").unlink()
