"""Attempts to get out: each runs in every isolated kind, one property a test.

`docs/escapes.md` lists them; what is tried with files that are carried out is in
`test_sandbox_files.py`, and what outlives a command in `test_sandbox_commands.py`.
"""

import contextlib
import ctypes
import os
import re
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from escapes import ESCAPES, PRELUDE, Escape
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain

ROOT = Path(__file__).parents[2]
KINDS = [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"]


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Things of the host that an attempt could find: each is really there, and open to root."""
    folder = tmp_path_factory.mktemp("host")
    secret = folder / "secret"
    secret.write_text("a secret of the host")
    secret.chmod(0o600)
    name = f"kernel-orchestrator-{uuid.uuid4().hex}"
    shm = Path("/dev/shm") / name
    shm.write_text("x")
    libc = ctypes.CDLL(None, use_errno=True)
    ipc = 0x4B0 + os.getpid()
    segment = libc.shmget(ipc, 4096, 0o1666)
    libc.syscall(248, b"user", name.encode(), b"value", 5, ctypes.c_int32(-4))  # add_key
    sleeper = subprocess.Popen(["sleep", "600"])
    with contextlib.ExitStack() as stack:
        stack.callback(sleeper.kill)
        stack.callback(libc.shmctl, segment, 0, None)
        stack.callback(shm.unlink)
        port = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        unix.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0" + name)
        abstract.listen()
        addresses = {info[4][0] for info in _own_addresses()}
        yield {
            "secret": str(secret),
            "pid": sleeper.pid,
            "engine": os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or "/nowhere",
            "socket": str(folder / "socket"),
            "abstract": name,
            "addresses": sorted(addresses),
            "port": port.getsockname()[1],
            "key": name,
            "ipc": ipc,
            "shm": name,
            "folders": [str(ROOT), str(folder), str(Path.home() / ".ssh"), "/var/lib"],
        }


def _own_addresses():
    with contextlib.suppress(OSError):
        return socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    return []


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request, tmp_path_factory):
    if (reason := provider(request.param).unavailable_reason()) is not None:
        pytest.skip(f"{request.param}: {reason}")
    toolchain = host_toolchain()
    spec = SandboxSpec(
        session_id=uuid.uuid4().hex,
        owner="the-tests",
        state_dir=tmp_path_factory.mktemp(request.param),
        mounts=toolchain.mounts,
        env=toolchain.env,
    )
    made = provider(request.param).start(spec)
    yield made
    made.close()


def program(escape: Escape, host: dict) -> str:
    return PRELUDE.replace("{host!r}", repr(host)) + escape.code + '\nprint("done")\n'


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.name)
def test_no_way_out(sandbox, host, escape):
    result = sandbox.exec(["python3", "-c", program(escape, host)], timeout_s=60)
    told = result.output.decode(errors="replace")
    lines = told.splitlines()
    assert lines and lines[-1] == "done", told
    assert [line for line in lines if line.startswith("tried")], "it tried nothing"
    assert not [line for line in lines if line.startswith("ESCAPED")], told
    assert sandbox.exec(["echo", "on"], timeout_s=20).output == b"on\n"


OUTSIDE = {
    "signal-host",
    "host-sockets",
    "abstract-sockets",
    "host-ports",
    "shared-memory",
    "host-folders",
    "capabilities",
}
"""Harmless outside, where they must succeed: so it is the sandbox that stops them."""


@pytest.mark.skipif(os.geteuid() != 0, reason="outside, these attempts succeed for root")
@pytest.mark.parametrize(
    "escape", [e for e in ESCAPES if e.name in OUTSIDE], ids=lambda escape: escape.name
)
def test_the_same_attempt_succeeds_outside(host, escape):
    done = subprocess.run(
        [sys.executable, "-c", program(escape, host)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "ESCAPED" in done.stdout, done.stdout + done.stderr


def test_a_host_process_outlives_whatever_a_sandbox_does(sandbox, host):
    sandbox.exec(["bash", "-c", "kill -9 -1"], timeout_s=20)
    running = Path(f"/proc/{host['pid']}/cmdline").read_bytes()  # a dead one's is empty
    assert running.startswith(b"sleep")


def test_the_page_lists_every_attempt():
    page = (ROOT / "docs" / "escapes.md").read_text("utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \| (.+?) \|", page, re.MULTILINE)
    assert listed == [(escape.name, escape.about) for escape in ESCAPES]
    assert len(listed) >= 40
