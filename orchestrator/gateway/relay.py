"""One call: checked, rewritten, sent, passed back as it comes, and kept before its end is told."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.gateway.admission import Admission
from orchestrator.gateway.reading import told
from orchestrator.gateway.rewrites import rewritten
from orchestrator.gateway.routes import ANTHROPIC, GEMINI, Route, error_body
from orchestrator.gateway.secret_stream import SecretStream
from orchestrator.gateway.terms import Exchange, Refused
from orchestrator.models import failures
from orchestrator.models.base import RetryNotice
from orchestrator.models.errors import DroppedStream, ModelError, Unreachable
from orchestrator.models.retry import RetryPolicy, retry_after_s
from transcripts.redact import Secrets

if TYPE_CHECKING:
    import httpx2

_HEADERS_OUT = ("anthropic-version", "anthropic-beta", "openai-beta", "accept", "idempotency-key")
_HEADERS_BACK = ("content-type", "retry-after", "request-id", "x-request-id")
_REFUSED = 403
HUNG_UP = "hung_up"


@dataclass
class Answer:
    """What the session gets: a status, headers, and a body that is still on its way."""

    status: int
    headers: dict[str, str]
    body: AsyncIterator[bytes]


@dataclass
class Call:
    """The state of one call."""

    admission: Admission
    route: Route
    path: str
    received: bytes
    number: int
    sent: bytes = b""
    rewrites: tuple[str, ...] = ()
    tries: list[RetryNotice] = field(default_factory=list)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)

    async def keep(
        self, status: int, response: bytes, error: str = "", why: str = "", content_type: str = ""
    ) -> None:
        """Record how it ended; ``why`` is the kind of ``error``. Raises what recording raises."""
        terms = self.admission.terms
        hidden = Secrets({"key": terms.key}).replace_bytes
        found = told(self.route.dialect, content_type, response) if status == 200 else None
        if found is not None and not found.whole and not error:
            error, why = "the answer ended before it was whole", DroppedStream.kind
        usage = found.usage if found is not None else None
        if not self.route.is_billed:
            usage = None
        cost = terms.entry.cost_usd(usage) if usage is not None else None
        exchange = Exchange(
            number=self.number,
            dialect=self.route.dialect,
            path=self.path,
            received=hidden(self.received),
            sent=hidden(self.sent),
            rewrites=self.rewrites,
            status=status,
            response=hidden(response),
            started_at=self.started_at,
            latency_s=round(time.monotonic() - self.started, 6),
            tries=tuple(self.tries),
            usage=usage,
            cost_usd=cost if self.route.is_billed else 0.0,
            served_model=found.model if found is not None else None,
            error=error,
            error_kind=why,
            is_billed=self.route.is_billed,
        )
        await asyncio.to_thread(self.admission.keep, exchange)


class Relay:
    """Makes calls for all sessions of a gateway, over one pool of connections."""

    def __init__(self, client: "httpx2.AsyncClient", policy: RetryPolicy) -> None:
        self._client, self._policy = client, policy

    async def answer(
        self,
        admission: Admission,
        route: Route,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> Answer:
        """The answer to one request of a session."""
        call = Call(admission, route, path, body, admission.number())
        try:
            request = _object(body)
            await asyncio.to_thread(admission.terms.before_call)
            sent, names = rewritten(route, request, admission.terms)
        except Refused as refused:
            return await self._refuse(call, _REFUSED, refused.message, refused.word)
        except ValueError as error:
            return await self._refuse(call, 400, f"the body is no JSON object: {error}")
        call.sent = body if not names else json.dumps(sent, ensure_ascii=False).encode()
        call.rewrites = tuple(names)
        return await self._send(call, _outgoing(call, headers))

    async def _refuse(self, call: Call, status: int, message: str, word: str = "") -> Answer:
        body = error_body(call.route.dialect, status, message, word)
        await call.keep(status, body, message, "refused")
        return Answer(status, {"content-type": "application/json"}, _once(body))

    async def _send(self, call: Call, headers: dict[str, str]) -> Answer:
        """Try until an answer begins, or the policy gives up."""
        failed: Counter[str] = Counter()
        while True:
            response: httpx2.Response | None = None
            try:
                response = await self._begin(call, headers)
                parts = response.aiter_bytes()
                first = await _first(parts)
                if response.status_code == 200:
                    return self._passed_on(call, response, first, parts)
                rest = b"".join([part async for part in parts])
                error = _error(response, first + rest)
            except ModelError as unreachable:
                error = unreachable
            failed[error.kind] += 1
            if failed[error.kind] >= self._policy.tries.get(error.kind, 0):
                return await self._give_up(call, response, error)
            wait_s = self._policy.wait_s(error, failed[error.kind])
            call.tries.append(RetryNotice(len(call.tries) + 1, error.kind, wait_s, str(error)))
            if response is not None:
                await response.aclose()
            await asyncio.sleep(wait_s)

    async def _begin(self, call: Call, headers: dict[str, str]) -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 - start-up time

        terms = call.admission.terms
        url = terms.base_url.rstrip("/") + call.route.upstream
        request = self._client.build_request("POST", url, content=call.sent, headers=headers)
        try:
            return await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.HTTPError as error:
            raise Unreachable(f"the provider does not answer: {error}") from error

    async def _give_up(
        self, call: Call, response: "httpx2.Response | None", error: ModelError
    ) -> Answer:
        status = 502 if response is None or response.status_code < 400 else response.status_code
        message = Secrets({"key": call.admission.terms.key}).replace_text(str(error))
        body = error_body(call.route.dialect, status, message, error.kind)
        if response is not None:
            await response.aclose()
        await call.keep(status, body, message, error.kind)
        return Answer(status, {"content-type": "application/json"}, _once(body))

    def _passed_on(
        self, call: Call, response: "httpx2.Response", first: bytes, parts: AsyncIterator[bytes]
    ) -> Answer:
        headers = {
            name: response.headers[name] for name in _HEADERS_BACK if name in response.headers
        }
        return Answer(200, headers, self._stream(call, response, first, parts))

    async def _stream(
        self, call: Call, response: "httpx2.Response", first: bytes, parts: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Bytes as they come; the last of them once the exchange has been kept."""
        import httpx2  # noqa: PLC0415

        kind = response.headers.get("content-type", "")
        secret = SecretStream(call.admission.terms.key)
        seen, waiting = [first], secret.clean(first)
        error, why = "the session hung up", HUNG_UP
        try:
            try:
                async for part in parts:
                    seen.append(part)
                    if waiting:
                        yield waiting
                    waiting = secret.clean(part)
                error = why = ""
            except httpx2.HTTPError as broken:
                error, why = f"the stream broke: {broken}", DroppedStream.kind
        finally:
            await response.aclose()
            await asyncio.shield(call.keep(200, b"".join(seen), error, why, kind))
        if error:
            raise ConnectionResetError(error)
        yield waiting + secret.rest()


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is something else")
    return value


def _outgoing(call: Call, headers: Mapping[str, str]) -> dict[str, str]:
    """The session's headers that may pass, and the key."""
    chosen = {name: headers[name] for name in _HEADERS_OUT if name in headers}
    chosen["content-type"] = "application/json"
    key = call.admission.terms.key
    if call.route.dialect == ANTHROPIC:
        return {"anthropic-version": "2023-06-01", **chosen, "x-api-key": key}
    if call.route.dialect == GEMINI:
        return {**chosen, "x-goog-api-key": key}
    return {**chosen, "authorization": f"Bearer {key}"}


async def _first(parts: AsyncIterator[bytes]) -> bytes:
    """The first bytes of the body: until they are there nothing has been told to the session."""
    import httpx2  # noqa: PLC0415

    try:
        return await anext(parts, b"")
    except httpx2.HTTPError as error:
        raise Unreachable(f"the answer broke before its first byte: {error}") from error


def _error(response: "httpx2.Response", body: bytes) -> ModelError:
    try:
        value = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace")[:500]
    wait_s = retry_after_s(response.headers)
    return failures.from_status(response.status_code, value, retry_after=wait_s)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
