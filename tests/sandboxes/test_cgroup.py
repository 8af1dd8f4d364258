import subprocess
import uuid

import pytest

from sandboxes import cgroup
from sandboxes.base import Limits


@pytest.fixture
def group():
    made = cgroup.make(f"test-{uuid.uuid4().hex}", Limits(memory_bytes=64 << 20, pids=8))
    if made is None:
        pytest.skip("no cgroup v2 with memory and pids controllers that we may write here")
    yield made
    made.remove()


def test_a_group_caps_memory_and_processes(group):
    assert (group.path / "memory.max").read_text().strip() == str(64 << 20)
    assert (group.path / "pids.max").read_text().strip() == "8"


def test_removal_kills_what_is_inside(group):
    join = f"echo $$ > {group.procs} && echo in && exec sleep 1000"
    process = subprocess.Popen(["sh", "-c", join], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    process.stdout.close()
    group.remove()
    assert process.wait(30) == -9
    assert not group.path.exists()


def test_reap_leaves_a_group_that_is_new_or_in_use(group):
    assert f"cgroup {group.path.name}" not in cgroup.reap()
    assert group.path.exists()
