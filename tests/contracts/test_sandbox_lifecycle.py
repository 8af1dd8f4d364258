"""What every kind promises about starting, ending and what is left."""

import os
import select
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from sandboxes.errors import SandboxGone

ROOT = Path(__file__).parents[2]

OWNER = """
import sys
from pathlib import Path
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider

kind, state, seconds = sys.argv[1:]
sandbox = provider(kind).start(SandboxSpec("orphans", "an-owner", Path(state)))
script = f"setsid sleep {seconds} & (setsid sleep {seconds} &) ; sleep {seconds} & echo started"
assert sandbox.exec(["bash", "-c", script], timeout_s=30).output == b"started\\n"
print("ready", flush=True)
sandbox.exec(["sleep", seconds], timeout_s=3600)
"""


def pids_of(argument: str) -> list[int]:
    """Host processes with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and argument.encode() in (entry / "cmdline").read_bytes().split(
                b"\0"
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_the_workspace_outlives_the_sandbox_and_temporary_files_do_not(start, shell):
    first = start()
    shell(first, 'echo kept > kept; echo gone > "${TMPDIR:-/tmp}/gone"')
    first.close()
    second = start()
    assert second.get("kept") == b"kept\n"
    assert shell(second, 'cat kept; echo more >> kept; ls -A "${TMPDIR:-/tmp}"').output == b"kept\n"


def test_close_may_be_called_again(sandbox):
    sandbox.close()
    sandbox.close()


def test_files_can_be_read_after_close(sandbox):
    sandbox.put("file", b"data")
    sandbox.close()
    assert sandbox.get("file") == b"data"
    assert [file.path for file in sandbox.snapshot()] == ["file"]


def test_a_closed_sandbox_is_gone(sandbox, shell):
    sandbox.close()
    with pytest.raises(SandboxGone):
        shell(sandbox, "true")


def test_close_leaves_no_process(sandbox, shell):
    seconds = str(uuid.uuid4().int % 10**9 + 10**9)
    shell(sandbox, f"setsid sleep {seconds} & (setsid sleep {seconds} &)")
    sandbox.close()
    assert [pid for pid in pids_of(seconds) if not is_zombie(pid)] == []


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_sandbox_outlives_the_thread_that_started_it(start, shell):
    made = []
    thread = threading.Thread(target=lambda: made.append(start()))
    thread.start()
    thread.join()
    assert shell(made[0], "echo alive").output == b"alive\n"


def test_nothing_outlives_an_owner_that_was_killed(kind, tmp_path):
    seconds = str(uuid.uuid4().int % 10**9 + 10**9)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, kind, str(tmp_path), seconds],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    left = [pid for pid in pids_of(seconds) if pid != owner.pid]
    assert len(left) >= 3
    watched = [os.pidfd_open(pid) for pid in left]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    while watched:
        ended, _, _ = select.select(watched, [], [], 30)
        assert ended, f"{len(watched)} processes outlived their owner"
        for fd in ended:
            watched.remove(fd)
            os.close(fd)


def test_reap_leaves_the_live_alone(kind, maker, start, shell):
    mine = f"owner-{uuid.uuid4().hex}"
    sandbox = start(owner=mine)
    assert maker.reap(lambda owner: True) == [] or kind == "bubblewrap"
    assert shell(sandbox, "echo alive").output == b"alive\n"


def test_reap_ends_what_a_dead_owner_left(kind, maker, start, shell):
    mine = f"owner-{uuid.uuid4().hex}"
    sandbox = start(owner=mine)
    removed = maker.reap(lambda owner: owner != mine)
    if kind == "bubblewrap":
        return  # its processes die with their owner, which is this test
    assert len(removed) >= 1
    with pytest.raises(SandboxGone):
        shell(sandbox, "true")
