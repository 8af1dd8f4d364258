"""What every kind promises about doors, streamed output, and standing still."""

import http.server
import json
import socket
import socketserver
import threading
import time

import pytest

from sandboxes.errors import SandboxGone

FETCH = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read().decode())"


def connected(sandbox, name, script):
    """Run Python that calls `door()` for a connection."""
    host, port = sandbox.doors[name].split(":")
    door = f"import socket; door = lambda: socket.create_connection(('{host}', {port}))\n"
    return sandbox.exec(["python3", "-c", door + script], timeout_s=60)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "a door"

    def log_message(self, *words):
        pass


class Echo(socketserver.BaseRequestHandler):
    """Answers once the caller has said all: a half-closed stream."""

    def handle(self):
        said = bytearray()
        while data := self.request.recv(1 << 16):
            said += data
        self.request.sendall(str(len(said)).encode())


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


@pytest.fixture
def behind(tmp_path):
    """Start a server on a Unix socket."""
    servers = []

    def start(handler, name="door"):
        path = tmp_path / f"{name}.sock"
        server = Server(str(path), handler)
        path.chmod(0o666)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return path

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_door_leads_to_its_socket_and_nowhere_else(start, shell, behind):
    sandbox = start(doors={"web": behind(Handler, "web"), "echo": behind(Echo, "echo")})
    assert set(sandbox.doors) == {"web", "echo"}
    assert len(set(sandbox.doors.values())) == 2
    url = f"http://{sandbox.doors['web']}/a/path"
    result = sandbox.exec(["python3", "-c", FETCH, url], timeout_s=30)
    assert json.loads(result.output) == {"path": "/a/path"}


def test_a_sandbox_without_doors_has_none(sandbox):
    assert sandbox.doors == {}


def test_half_closed_and_large_streams_pass(start, shell, behind):
    sandbox = start(doors={"echo": behind(Echo)})
    result = connected(
        sandbox,
        "echo",
        "s = door(); s.sendall(b'x' * 5_000_000); s.shutdown(1); print(s.recv(100).decode())",
    )
    assert result.output == b"5000000\n"


def test_many_connections_at_once(start, shell, behind):
    sandbox = start(doors={"echo": behind(Echo)})
    result = connected(
        sandbox,
        "echo",
        "all = [door() for _ in range(40)]\n"
        "for n, s in enumerate(all): s.sendall(b'x' * n); s.shutdown(1)\n"
        "print(sum(int(s.recv(100)) for s in all))",
    )
    assert result.output == b"780\n"


def test_a_door_that_nobody_is_behind_closes_at_once(start, behind, tmp_path):
    path = tmp_path / "gone.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    sandbox = start(doors={"gone": path})
    result = connected(sandbox, "gone", "print(repr(door().recv(10)))")
    assert result.output == b"b''\n"


def test_commands_cannot_close_the_doors_or_take_them(start, shell, behind, kind):
    if kind == "process":
        pytest.skip("process: a command may kill its supervisor; the threat model says so")
    sandbox = start(doors={"web": behind(Handler)})
    port = sandbox.doors["web"].split(":")[1]
    shell(sandbox, "kill -9 -1; kill -9 1; true", timeout_s=20)
    taken = f"import socket; s = socket.socket(); s.bind(('127.0.0.1', {port}))"
    assert b"in use" in sandbox.exec(["python3", "-c", taken], timeout_s=20).output
    url = f"http://{sandbox.doors['web']}/still"
    assert b"/still" in sandbox.exec(["python3", "-c", FETCH, url], timeout_s=20).output


def test_a_door_outlives_commands_that_take_every_process(start, shell, behind, kind):
    if kind == "process":
        pytest.skip("process: the number of processes is not capped; the threat model says so")
    sandbox = start(doors={"web": behind(Handler)}, limits={"pids": 40})
    port = sandbox.doors["web"].split(":")[1]
    script = (
        "import os, socket, time\n"
        "try:\n    while True:\n        os.fork() or (time.sleep(3), os._exit(0))\n"
        "except OSError:\n    pass\n"
        f"for _ in range(20):\n    s = socket.create_connection(('127.0.0.1', {port}), 2)\n"
        "    s.close()\n"
        "print('all taken')"
    )
    taken = sandbox.exec(["python3", "-c", script], timeout_s=30)
    assert b"all taken" in taken.output
    time.sleep(4)
    url = f"http://{sandbox.doors['web']}/after"
    assert b"/after" in sandbox.exec(["python3", "-c", FETCH, url], timeout_s=30).output


def test_output_comes_as_it_is_written_and_whole(start, shell):
    sandbox = start(limits={"output_bytes": 1000})
    came, first = [], []

    def take(data):
        first.append(time.monotonic())
        came.append(data)

    started = time.monotonic()
    result = shell(
        sandbox,
        "echo begin; sleep 1; head -c 300000 /dev/zero | tr '\\0' x; echo end",
        on_output=take,
    )
    whole = b"".join(came)
    assert whole.startswith(b"begin\n")
    assert whole.endswith(b"xend\n")
    assert len(whole) == 6 + 300_000 + 4
    assert first[0] - started < time.monotonic() - first[0]  # not all of it at the end
    assert len(result.output) < 1100
    assert result.exit_code == 0


def test_a_callback_that_fails_ends_the_sandbox_and_says_why(start, shell):
    sandbox = start()

    def refuse(data):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shell(sandbox, "echo a; sleep 60", on_output=refuse)
    with pytest.raises(SandboxGone):
        shell(sandbox, "true")


def counting(sandbox, shell):
    """A command that counts in the workspace, in a thread; returns how far it is."""
    script = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); echo $n >count; sleep 0.01; done"
    results = []
    thread = threading.Thread(
        target=lambda: results.append(shell(sandbox, f"setsid -w bash -c '{script}'", timeout_s=2))
    )
    thread.start()

    def count():
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                return int(sandbox.get("count") or b"0")
            except (FileNotFoundError, ValueError):
                time.sleep(0.01)
        raise AssertionError("it never began to count")

    count()
    return thread, results, count


def test_a_frozen_sandbox_stands_still_and_goes_on(sandbox, shell):
    thread, results, count = counting(sandbox, shell)
    sandbox.freeze()
    sandbox.freeze()
    before = count()
    time.sleep(0.5)
    assert count() == before
    sandbox.thaw()
    sandbox.thaw()
    deadline = time.monotonic() + 10
    while count() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert count() > before
    thread.join(30)
    assert results[0].timed_out


def test_time_that_a_sandbox_stands_still_is_not_a_commands(sandbox, shell):
    thread, results, _ = counting(sandbox, shell)
    began = time.monotonic()
    sandbox.freeze()
    time.sleep(2.5)  # more than the command has
    assert thread.is_alive()
    sandbox.thaw()
    thread.join(30)
    assert results[0].timed_out
    assert time.monotonic() - began > 2.5 + 1


def test_a_command_that_comes_to_a_frozen_sandbox_waits(sandbox, shell):
    sandbox.freeze()
    results = []
    thread = threading.Thread(target=lambda: results.append(shell(sandbox, "echo ran >mark")))
    thread.start()
    time.sleep(0.5)
    assert not results
    with pytest.raises(FileNotFoundError):
        sandbox.get("mark")
    sandbox.thaw()
    thread.join(30)
    assert results[0].exit_code == 0
    assert sandbox.get("mark") == b"ran\n"


def test_a_frozen_sandbox_can_be_closed(sandbox, shell):
    thread, _, _ = counting(sandbox, lambda *a, **k: _gone(shell, *a, **k))
    sandbox.freeze()
    sandbox.close()
    thread.join(30)
    assert not thread.is_alive()


def _gone(shell, *arguments, **options):
    try:
        return shell(*arguments, **options)
    except SandboxGone:
        return None
