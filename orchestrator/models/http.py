"""HTTP settings of both SDKs: one TLS context a process, no proxy to this very machine."""

import ssl
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 20.0
"""Seconds to connect (and to get a connection of the pool); waiting for tokens is another limit."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def http_options(base_url: str, stall_s: float) -> dict[str, Any]:
    """Keyword arguments for an SDK's ``DefaultHttpxClient``."""
    import httpx2  # noqa: PLC0415 - start-up time

    return {
        "verify": _tls_context(),
        "timeout": timeouts(stall_s),
        "limits": httpx2.Limits(max_connections=8, max_keepalive_connections=2),
        "trust_env": urlsplit(base_url).hostname not in _LOOPBACK,
    }


def timeouts(stall_s: float) -> "httpx2.Timeout":
    """Connecting is quick or fails; the first token may take as long as a stall may."""
    import httpx2  # noqa: PLC0415

    return httpx2.Timeout(connect=CONNECT_S, pool=CONNECT_S, write=stall_s, read=stall_s)


_making = Lock()


def _tls_context() -> ssl.SSLContext:
    with _making:  # sessions that start together would each make one
        return _one_tls_context()


@cache
def _one_tls_context() -> ssl.SSLContext:
    # A context reads all certificates (milliseconds, megabytes): not once for each session.
    import httpx2  # noqa: PLC0415

    return httpx2.create_ssl_context()
