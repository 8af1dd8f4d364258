import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from sandboxes.errors import LeaseBusy
from sandboxes.lease import GATE, holder, lease, lease_path

ROOT = Path(__file__).parents[2]

HOLD = """
import sys
from sandboxes.lease import lease
with lease(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def name():
    chosen = f"test/{uuid.uuid4().hex}"
    yield chosen
    for file in (chosen, chosen + GATE):
        lease_path(file).unlink(missing_ok=True)


@pytest.fixture
def other(name):
    """Another process that holds the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_free_lease_is_had_at_once(name):
    with lease(name, timeout_s=0) as waited:
        assert waited < 60
    with lease(name, timeout_s=0):
        pass


def test_a_busy_lease_names_its_holder(name, other):
    with pytest.raises(LeaseBusy, match=f"process {other.pid} "), lease(name, timeout_s=0.1):
        pass
    assert f"process {other.pid} " in str(holder(name))


def test_a_killed_holder_frees_it(name, other):
    other.kill()
    other.wait()
    assert holder(name) is None
    with lease(name, timeout_s=30):
        pass


def test_some_share_it_and_who_wants_it_alone_waits_for_the_last(name):
    with (
        lease(name, shared=True),
        lease(name, timeout_s=0, shared=True),
        pytest.raises(LeaseBusy, match="others, who share it"),
        lease(name, timeout_s=0.1),
    ):
        pass
    with (
        lease(name, timeout_s=0),
        pytest.raises(LeaseBusy),
        lease(name, timeout_s=0.1, shared=True),
    ):
        pass


def test_those_that_share_cannot_keep_out_who_wants_it_alone(name):
    got, leave = threading.Event(), threading.Event()

    def alone() -> None:
        with lease(name):
            got.set()
            leave.wait(60)

    with lease(name, shared=True):
        thread = threading.Thread(target=alone)
        thread.start()
        while not waits_at_the_gate(name):
            assert thread.is_alive()
        with pytest.raises(LeaseBusy), lease(name, timeout_s=0.1, shared=True):
            pass
    assert got.wait(60)
    leave.set()
    thread.join()


def waits_at_the_gate(name: str) -> bool:
    try:
        with lease(name, timeout_s=0, shared=True):
            return False
    except LeaseBusy:
        return True


def test_threads_exclude_each_other(name):
    with lease(name):
        got = threading.Event()

        def wait() -> None:
            with lease(name):
                got.set()

        thread = threading.Thread(target=wait)
        thread.start()
        with pytest.raises(LeaseBusy), lease(name, timeout_s=0.1):
            pass
        assert not got.is_set()
    thread.join(30)
    assert got.is_set()


def test_an_error_inside_frees_it(name):
    with pytest.raises(RuntimeError), lease(name):
        raise RuntimeError
    assert holder(name) is None


def test_names_are_apart_and_every_user_can_open_the_file(name):
    with lease(name), lease(name + "-2", timeout_s=0):
        assert lease_path(name).stat().st_mode & 0o777 == 0o666
    lease_path(name + "-2").unlink()


def test_a_lease_nobody_ever_held_has_no_holder(name):
    assert holder(name) is None
