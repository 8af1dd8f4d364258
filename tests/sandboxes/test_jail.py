import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandboxes.base import Limits, Mount
from sandboxes.jail import Jail, descendants, kill_tree, spare_uid, unconfined
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain, interpreter, reachable_by_others

ROOT = Path(__file__).parents[2]
needs_bubblewrap = pytest.mark.skipif(
    provider("bubblewrap").unavailable_reason() is not None, reason="no bubblewrap here"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its uid")

FORKERS = "setsid sleep 1000 & (setsid sleep 1000 &); echo started; sleep 1000"


def output(process: subprocess.Popen[bytes]) -> str:
    return process.communicate()[0].decode()


@needs_bubblewrap
def test_descriptors_are_inherited_by_number():
    toolchain = host_toolchain(())
    ours, theirs = socket.socketpair()
    code = f"import socket; s = socket.socket(fileno={theirs.fileno()}); s.sendall(s.recv(9) * 2)"
    with ours, theirs:
        process = Jail(toolchain.mounts, uid=spare_uid("wire")).popen(
            [toolchain.python, "-I", "-S", "-c", code], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        ours.sendall(b"echo")
        assert ours.recv(99) == b"echoecho"
        assert ours.recv(99) == b""
        assert process.wait() == 0


@needs_bubblewrap
def test_no_other_descriptor_gets_in(tmp_path):
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        process = Jail(host_toolchain(()).mounts).popen(
            ["ls", "/proc/self/fd"], stdout=subprocess.PIPE
        )
        assert output(process).split() == ["0", "1", "2", "3"]


@needs_bubblewrap
@needs_root
def test_each_name_has_a_uid_of_its_own():
    mounts = host_toolchain(()).mounts
    uids = {
        output(Jail(mounts, uid=spare_uid(name)).popen(["id", "-u"], stdout=subprocess.PIPE))
        for name in ("one", "two")
    }
    assert len(uids) == 2
    assert not uids & {"0\n", "65534\n"}


@needs_bubblewrap
def test_only_writable_mounts_can_be_written(tmp_path):
    uid = spare_uid("writer")
    for name in ("shown", "scratch"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, uid, -1)
    jail = Jail(
        (*host_toolchain(()).mounts, Mount(tmp_path / "shown", "/deep/down/shown")),
        writable=(Mount(tmp_path / "scratch", "/scratch"),),
        cwd="/scratch",
        uid=uid,
    )
    process = jail.popen(
        ["sh", "-c", "touch here; touch /deep/down/shown/there"], stderr=subprocess.DEVNULL
    )
    assert process.wait() == 1
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["here"]
    assert list((tmp_path / "shown").iterdir()) == []


@needs_bubblewrap
def test_the_exit_code_is_that_of_the_program():
    assert Jail(host_toolchain(()).mounts).popen(["sh", "-c", "exit 7"]).wait() == 7


@needs_bubblewrap
@pytest.mark.parametrize("as_init", [False, True])
def test_kill_tree_leaves_nothing_of_a_jail(as_init):
    process = Jail(host_toolchain(()).mounts, as_init=as_init).popen(
        ["bash", "-c", FORKERS], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    inside = descendants(process.pid)
    assert len(inside) >= 3
    watched = [os.pidfd_open(pid) for pid in inside]
    kill_tree(process)
    assert process.returncode is not None
    for fd in watched:  # bubblewrap is gone only after all of them
        assert is_dead(fd)
        os.close(fd)
    process.stdout.close()
    kill_tree(process)


def test_kill_tree_kills_what_runs_unconfined(tmp_path):
    process = unconfined(
        ["bash", "-c", "sleep 1000 & echo started; sleep 1000"],
        env={"PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    watched = [os.pidfd_open(pid) for pid in descendants(process.pid)]
    kill_tree(process)
    for fd in watched:
        assert is_dead(fd)
        os.close(fd)
    process.stdout.close()


def is_dead(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 10)[0])


def test_unconfined_has_nothing_of_our_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_SECRET", "x")
    process = unconfined(["env"], env={"PATH": "/usr/bin"}, cwd=tmp_path, stdout=subprocess.PIPE)
    assert output(process) == "PATH=/usr/bin\n"


@needs_root
def test_unconfined_takes_another_uid_where_it_can(tmp_path):
    assert reachable_by_others([Path("/usr/bin/id")])
    uid = spare_uid("unconfined")
    process = unconfined(
        ["/usr/bin/id", "-u"], env={}, cwd=Path("/"), uid=uid, stdout=subprocess.PIPE
    )
    assert output(process) == f"{uid}\n"


def test_limits_hold_unconfined(tmp_path):
    process = unconfined(
        [str(interpreter()), "-I", "-S", "-c", "x = b'x' * (1 << 30)"],
        env={},
        cwd=tmp_path,
        limits=Limits(memory_bytes=256 << 20),
        stderr=subprocess.PIPE,
    )
    assert b"MemoryError" in process.communicate()[1]


@needs_bubblewrap
def test_a_jail_outlives_the_thread_that_started_it():
    started = []
    mounts = host_toolchain(()).mounts

    def start() -> None:
        started.append(Jail(mounts).popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started[0].communicate(b"alive")[0] == b"alive"
    assert started[0].returncode == 0


@needs_bubblewrap
def test_a_jail_dies_with_a_killed_process():
    code = """
import sys, time
from sandboxes.jail import Jail, descendants
from sandboxes.toolchain import host_toolchain
process = Jail(host_toolchain(()).mounts).popen(["bash", "-c", sys.argv[1]], stdout=-1)
process.stdout.readline()
print(*descendants(process.pid), flush=True)
time.sleep(1000)
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", code, FORKERS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    watched = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
    assert len(watched) >= 3
    owner.kill()
    owner.wait()
    owner.stdout.close()
    for fd in watched:
        assert is_dead(fd)
        os.close(fd)
