import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from sandboxes.errors import LeaseBusy
from sandboxes.lease import holder, lease, lease_path

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
    lease_path(chosen).unlink(missing_ok=True)


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
