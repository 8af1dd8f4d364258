"""What the isolating kinds promise beyond the rest: one attack a test."""

import os
import socket
import sys
from pathlib import Path

import pytest

from sandboxes.base import Mount
from sandboxes.toolchain import host_toolchain

pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"], indirect=True
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def python(sandbox):
    """Run Python code inside; returns what it printed."""

    def run(code: str) -> str:
        result = sandbox.exec(["python3", "-c", code], timeout_s=60)
        return result.output.decode()

    return run


def test_a_command_is_an_ordinary_user_without_capabilities(python):
    lines = python("print(open('/proc/self/status').read())").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert "0" not in status["Uid"].split()
    assert "0" not in status["Gid"].split()
    for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
        assert int(status[f"Cap{kind}"], 16) == 0, kind
    assert status["NoNewPrivs"] == "1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that it could leak")
def test_the_files_of_root_stay_closed(start, shell, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    sandbox = start(mounts=(*host_toolchain().mounts, Mount(secret, "/opt/secret")))
    result = shell(sandbox, "cat /opt/secret")
    assert result.exit_code == 1
    assert b"Permission denied" in result.output


def test_none_of_our_packages_is_importable(python):
    code = """
import importlib.util, sys
for name in ("orchestrator", "transcripts", "tasks", "sandboxes", "graders", "pytest", "pip"):
    if importlib.util.find_spec(name): print(name, "found")
"""
    assert python(code) == ""


def test_no_file_of_ours_is_there(python):
    code = """
import os
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys")]
    for name in (*folders, *files):
        if name in ("graders", "kernel_orchestrator.egg-info", "referee.py", "rubric.toml"):
            print(os.path.join(folder, name))
"""
    assert python(code) == ""


def test_host_folders_are_not_there(python, tmp_path):
    (tmp_path / "archive").write_text("sealed")
    paths = [str(tmp_path), str(ROOT), "/var/log", "/etc/shadow", "/etc/ssh", "/srv", "/mnt"]
    assert python(f"import os\nfor p in {paths}:\n  if os.path.exists(p): print(p)") == ""


def test_the_home_folder_holds_at_most_the_interpreter(python):
    home = Path.home()
    prefix = Path(sys.base_prefix)
    allowed = {prefix.relative_to(home).parts[0]} if prefix.is_relative_to(home) else set()
    listing = python(
        f"import os, sys\nif os.path.exists(p := {str(home)!r}): print(*os.listdir(p))"
    )
    assert set(listing.split()) <= allowed


def test_the_hosts_environment_is_not_there(monkeypatch, start, shell):
    monkeypatch.setenv("SOME_API_KEY", "sk-" + "leak-me-not")
    sandbox = start()
    result = shell(sandbox, "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null")
    assert b"leak-me" not in result.output
    assert b"HOME=/tmp" in result.output


def test_the_hosts_network_is_out_of_reach(python):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0kernel-orchestrator-contract")
        abstract.listen()
        code = f"""
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {tcp.getsockname()[1]})),
                        (socket.AF_INET, ("192.0.2.1", 80)),
                        (socket.AF_UNIX, "\\0kernel-orchestrator-contract")):
    try:
        with socket.socket(family) as sock:
            sock.settimeout(5)
            sock.connect(address)
        print("reached", address)
    except OSError as error:
        pass
print(*(name for _, name in socket.if_nameindex()))
"""
        said = python(code)
    assert "reached" not in said
    # Kernels with tunnel modules show these in every new namespace, down.
    tunnels = [
        "tunl0",
        "sit0",
        "gre0",
        "gretap0",
        "erspan0",
        "ip_vti0",
        "ip6_vti0",
        "ip6tnl0",
        "ip6gre0",
    ]
    assert set(said.split()) - set(tunnels) == {"lo"}


def test_the_system_is_read_only(shell, sandbox):
    places = "/ /usr /usr/bin /etc /opt /opt/site /opt/site/numpy /dev"
    result = shell(sandbox, f"for p in {places}; do touch $p/x 2>/dev/null && echo $p; done")
    assert result.output == b""


def test_what_is_covered_cannot_be_uncovered(shell, sandbox):
    code = """
for p in $(awk '{print $5}' /proc/self/mountinfo | tac); do
    umount -l $p 2>/dev/null && echo umounted $p
done
mount -t tmpfs none /workspace 2>/dev/null && echo mounted
mount -o remount,rw /usr 2>/dev/null && echo remounted
unshare -Urm umount /usr/lib/python3/dist-packages 2>/dev/null && echo uncovered
true
"""
    assert shell(sandbox, code).output == b""


def test_the_supervisor_cannot_be_ended_or_entered(sandbox, shell, python):
    for signal in ("KILL", "STOP", "INT", "TERM", "HUP", "CHLD"):
        assert shell(sandbox, f"kill -{signal} 1; echo on").output == b"on\n"
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("attached" if libc.ptrace(16, 1, 0, 0) == 0 else "refused")
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/maps"):
    try:
        open(path, "rb").read(1)
        print("read", path)
    except OSError:
        pass
try:
    print(os.listdir("/proc/1/fd"))
except OSError:
    pass
fd = os.pidfd_open(1)
print("took" if libc.syscall(438, fd, 3, 0) >= 0 else "refused")  # pidfd_getfd
"""
    assert python(code) == "refused\nrefused\n"


def test_a_command_that_kills_everything_it_can_harms_itself_only(sandbox, shell):
    shell(sandbox, "kill -9 -1")
    assert shell(sandbox, "echo on").output == b"on\n"


def test_processes_of_the_host_are_not_seen(python):
    pids = python("import os; print(max(int(n) for n in os.listdir('/proc') if n.isdigit()))")
    assert int(pids) < 100


def test_memory_is_capped(start, shell):
    sandbox = start(limits={"memory_bytes": 256 << 20})
    result = shell(sandbox, "python3 -c 'print(len(b\"x\" * (1 << 30)))'")
    assert result.exit_code not in (0, None)
    assert shell(sandbox, "echo on").output == b"on\n"


def test_temporary_files_are_capped(start, shell):
    sandbox = start(limits={"memory_bytes": 128 << 20, "file_bytes": 1 << 30})
    assert shell(sandbox, "head -c 300000000 /dev/zero > /tmp/big").exit_code != 0
    assert shell(sandbox, "rm -f /tmp/big; echo on").output == b"on\n"


def test_processes_are_capped(start, shell):
    sandbox = start(limits={"pids": 64})
    sandbox.put("fork.py", FORKS)
    assert 0 < int(shell(sandbox, "python3 fork.py").output) <= 64
    assert sandbox.exec(["sleep", "300"], timeout_s=0.2).timed_out  # which kills all of them
    assert shell(sandbox, "echo on | cat").output == b"on\n"


FORKS = b"""
import os, time
n = 0
try:
    while n < 500:
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""


def test_a_fork_bomb_ends_with_its_timeout(start, shell):
    sandbox = start(limits={"pids": 64})
    result = shell(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 300", timeout_s=1)
    assert result.timed_out or result.exit_code
    sandbox.exec(["sleep", "300"], timeout_s=0.2)  # kills what the bomb left, if it left room
    assert shell(sandbox, "echo on | cat").output == b"on\n"


def test_two_sandboxes_do_not_see_each_other(start, shell, survivors, tmp_path):
    one = start(session_id="one", state_dir=tmp_path / "one")
    two = start(session_id="two", state_dir=tmp_path / "two")
    shell(one, "touch /workspace/a /tmp/a /dev/shm/a; sleep 4242 & sleep 4242 &")
    assert shell(two, "ls -A /workspace /tmp /dev/shm | grep a$").output == b""
    assert survivors(two, 4242) == 0
    assert survivors(one, 4242) == 2


def test_the_command_after_a_fork_bomb_runs(start, shell):
    sandbox = start()
    shell(sandbox, "bomb() { bomb | bomb & }; bomb", timeout_s=20)
    result = shell(sandbox, "echo $(echo alive)", timeout_s=20)
    assert (result.exit_code, result.output) == (0, b"alive\n")
