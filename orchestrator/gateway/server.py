"""The gateway's server: a Unix socket, a token a session, and nothing else behind it."""

import asyncio
import hmac
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.gateway.admission import Admission
from orchestrator.gateway.relay import Relay
from orchestrator.gateway.routes import MODELS, dialect_of, error_body, route_of
from orchestrator.gateway.terms import Terms
from orchestrator.models.retry import RetryPolicy
from sandboxes.scratch import Scratch

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

MOST_BODY_BYTES = 64 << 20
BODY_S = 120.0
"""A body must be there whole within this, and no larger than that."""

_STOP_S = 5.0
_MOST_THREADS = 1024


class Gateway:
    """A context manager; one a sweep. Sessions are admitted and closed at any time."""

    def __init__(self, policy: RetryPolicy | None = None) -> None:
        self._policy = policy or RetryPolicy()
        self._admitted: dict[str, Admission] = {}
        self._scratch: Scratch | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def socket(self) -> Path:
        """Where it listens."""
        assert self._scratch is not None, "enter the gateway first"
        return self._scratch.path / "gateway.sock"

    def admit(self, terms: Terms) -> Admission:
        """Let a session in; `Admission.close` ends that."""
        admission = Admission(terms, self.socket, self._forget)
        self._admitted[admission.token] = admission
        return admission

    def admission_of(self, token: str) -> Admission | None:
        """Whose a token is, found without telling by time how much of it is right."""
        found = None
        for known, admission in list(self._admitted.items()):
            if hmac.compare_digest(known.encode(), token.encode()):
                found = admission
        return found

    def _forget(self, token: str) -> None:
        self._admitted.pop(token, None)

    def __enter__(self) -> "Gateway":
        import uvicorn  # noqa: PLC0415 - start-up time

        self._scratch = Scratch("gateway")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.socket))
        self.socket.chmod(0o666)  # whoever it is mounted for; the folder is closed to all others
        listener.listen(1024)
        config = uvicorn.Config(
            self._app(),
            http="h11",
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=60,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="gateway", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None and self._thread is not None and self._scratch is not None
        self._admitted.clear()
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._scratch.close()

    def _app(self) -> Any:
        from starlette.applications import Starlette  # noqa: PLC0415 - start-up time
        from starlette.requests import Request  # noqa: PLC0415
        from starlette.responses import Response  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415

        relay: Relay | None = None

        async def any_path(request: Request) -> Response:
            nonlocal relay
            relay = relay or _relay(self._policy)
            return await self._answer(request, relay)

        methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"]
        return Starlette(routes=[Route("/{path:path}", any_path, methods=methods)])

    async def _answer(self, request: "Request", relay: Relay) -> "Response":
        path = request.url.path
        admission = self._admission(request.headers)
        if admission is None:
            return _error(path, 401, "no session has this token")
        if path.startswith("/session/") and request.method == "POST":
            return await _at_the_desk(admission, path.removeprefix("/session/"), request)
        return _models(admission) if path in MODELS else await _called(admission, request, relay)

    def _admission(self, headers: Mapping[str, str]) -> Admission | None:
        given = headers.get("x-api-key") or headers.get("x-goog-api-key") or ""
        return self.admission_of(given or headers.get("authorization", "").removeprefix("Bearer "))


async def _called(admission: Admission, request: "Request", relay: Relay) -> "Response":
    """A call of a model, where path and dialect allow it."""
    from starlette.responses import StreamingResponse  # noqa: PLC0415 - start-up time

    path, entry = request.url.path, admission.terms.entry
    route = route_of(path, request.url.query, entry.model)
    if route is None or request.method != "POST":
        return _error(path, 404, f"nothing is at {request.method} {path[:200]}")
    if route.dialect != entry.protocol:
        return _error(
            path,
            400,
            f"`{entry.name}` is asked by `{entry.protocol}`, not by `{route.dialect}`: choose a "
            "harness that speaks it, or an entry of the roster that does",
        )
    body = await _body(request)
    if body is None:
        return _error(path, 413, f"a body has at most {MOST_BODY_BYTES} bytes, sent in time")
    answer = await relay.answer(admission, route, path, body, request.headers)
    return StreamingResponse(answer.body, answer.status, answer.headers)


def _relay(policy: RetryPolicy) -> Relay:
    """Made on the server's loop. Redirects are not followed, nor the environment's proxies asked
    for a provider on this machine."""
    import httpx2  # noqa: PLC0415 - start-up time

    # Calls wait in threads for permits, desks and disks: the default's few would be all taken.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
    timeout = httpx2.Timeout(connect=20.0, pool=60.0, write=120.0, read=900.0)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    return Relay(httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False), policy)


async def _body(request: "Request") -> bytes | None:
    """The whole body; None where it is too large or too slow."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY_BYTES:
                    return None
                parts.append(part)
    except TimeoutError:
        return None
    return b"".join(parts)


async def _at_the_desk(admission: Admission, verb: str, request: "Request") -> "Response":
    from starlette.responses import Response  # noqa: PLC0415

    desk, body = admission.terms.desk, await _body(request)
    if desk is None or body is None:
        return _error("", 404, "this session has no desk")
    status, answer = await asyncio.to_thread(desk.ask, verb, body)
    return Response(answer, status, media_type="application/json")


def _models(admission: Admission) -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    name = admission.terms.entry.model
    one = {"id": name, "object": "model", "type": "model", "display_name": name, "created": 0}
    return JSONResponse({"object": "list", "data": [one], "has_more": False})


def _error(path: str, status: int, message: str) -> "Response":
    from starlette.responses import Response  # noqa: PLC0415

    body = error_body(dialect_of(path), status, message)
    return Response(body, status, media_type="application/json")
