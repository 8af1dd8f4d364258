"""The tunnel to allow-listed hosts, over its socket, with hosts on this machine."""

import base64
import socket
import threading
import time

import pytest

from orchestrator.gateway.tunnel import BadHost, Tunnel, allowed_hosts


@pytest.fixture
def host():
    """Says back what it hears."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller:
                while data := caller.recv(4096):
                    caller.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def told():
    return []


@pytest.fixture
def tunnel(session, gateway, told, host):
    one = session(on_tunnel=told.append)
    allowed = allowed_hosts([f"127.0.0.1:{host}", f"localhost:{host}"])
    with Tunnel(allowed, gateway.admission_of) as made:
        yield one.admission, made


def connect(tunnel, where, token=None, verb="CONNECT"):
    admission, made = tunnel
    words = base64.b64encode(f"session:{token or admission.token}".encode()).decode()
    caller = socket.socket(socket.AF_UNIX)
    caller.settimeout(20)
    caller.connect(str(made.path))
    caller.sendall(
        f"{verb} {where} HTTP/1.1\r\nProxy-Authorization: Basic {words}\r\n\r\n".encode()
    )
    return caller, caller.recv(4096).split(b" ")[1]


def ended(caller):
    """Wait for the other end to hang up: what it tells, it has told by then."""
    with caller:
        while caller.recv(4096):
            pass


def noted(told):
    """The notes, once there is one: it is made when both ends are closed."""
    until = time.monotonic() + 30
    while not told and time.monotonic() < until:
        time.sleep(0.01)
    return told


def test_an_allowed_address_is_reached_and_its_bytes_are_counted(tunnel, told, host):
    caller, status = connect(tunnel, f"127.0.0.1:{host}")
    assert status == b"200"
    caller.sendall(b"hello")
    assert caller.recv(4096) == b"hello"
    caller.shutdown(socket.SHUT_WR)
    ended(caller)
    (one,) = noted(told)
    assert (one.host, one.port, one.sent, one.received) == ("127.0.0.1", host, 5, 5)


@pytest.mark.parametrize(
    ("where", "status", "why"),
    [
        ("127.0.0.1:{other}", b"403", "not on the list"),
        ("example.org:443", b"403", "not on the list"),
        ("localhost:{host}", b"502", "private network"),  # a name may not lead home
    ],
)
def test_others_are_refused_and_told(tunnel, told, host, where, status, why):
    caller, said = connect(tunnel, where.format(host=host, other=host + 1))
    assert said == status
    ended(caller)
    assert [why in one.refused for one in noted(told)] == [True]


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_nothing_but_connect_is_answered(tunnel, told, host, verb):
    assert connect(tunnel, f"127.0.0.1:{host}", verb=verb)[1] == b"407"
    assert told == []


def test_a_token_that_is_none_or_over_opens_nothing(tunnel, told, host):
    assert connect(tunnel, f"127.0.0.1:{host}", token="wrong")[1] == b"407"
    tunnel[0].close()
    assert connect(tunnel, f"127.0.0.1:{host}")[1] == b"407"
    assert told == []


@pytest.mark.parametrize("name", ["", "http://x", "a b", "x:y", "*", "x/y"])
def test_what_is_no_host_is_refused(name):
    with pytest.raises(BadHost):
        allowed_hosts([name])


def test_a_host_without_a_port_means_https():
    assert allowed_hosts(["PyPI.org", "x:8443"]) == {("pypi.org", 443), ("x", 8443)}
