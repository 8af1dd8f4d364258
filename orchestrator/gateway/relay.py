"""One call: checked, rewritten, sent, passed back as it comes, and kept before its end is told."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.gateway.admission import Admission
from orchestrator.gateway.call import Answer, Call
from orchestrator.gateway.permits import Permit
from orchestrator.gateway.reading import told
from orchestrator.gateway.rewrites import rewritten
from orchestrator.gateway.routes import ANTHROPIC, GEMINI, Route, error_body
from orchestrator.gateway.secret_stream import SecretStream
from orchestrator.gateway.terms import Refused
from orchestrator.models import failures
from orchestrator.models.base import RetryNotice
from orchestrator.models.errors import DroppedStream, Interrupted, ModelError, Unreachable
from orchestrator.models.http import timeouts
from orchestrator.models.retry import RetryPolicy, retry_after_s
from transcripts.redact import Secrets

if TYPE_CHECKING:
    import httpx2

_HEADERS_OUT = ("anthropic-version", "anthropic-beta", "openai-beta", "accept", "idempotency-key")
_HEADERS_BACK = ("content-type", "retry-after", "request-id", "x-request-id")
_REFUSED = 403
HUNG_UP = "hung_up"
"""Kind of error: the session went away before its answer was whole."""

MOST_ANSWER_BYTES = 64 << 20
"""Of an answer; a longer one breaks off. The largest windows of today fill a tenth of it."""

_MOST_ERROR_BYTES = 1 << 20


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
            with admission.calling():
                return await self._answer(call, headers)
        except asyncio.CancelledError:
            _raise_unless_closed(admission)
            return await self._refuse(call, _REFUSED, "the session ended", HUNG_UP)
        except Refused as refused:
            return await self._refuse(call, _REFUSED, refused.message, word=refused.word)
        except Interrupted as stopped:
            return await self._refuse(call, _REFUSED, str(stopped), HUNG_UP)

    async def _answer(self, call: Call, headers: Mapping[str, str]) -> Answer:
        terms = call.admission.terms
        try:
            request = _object(call.received)
            await asyncio.to_thread(terms.before_call)
            sent, names = rewritten(call.route, request, terms)
        except ValueError as error:
            return await self._refuse(call, 400, f"the body is no JSON object: {error}")
        call.sent = call.received if not names else json.dumps(sent, ensure_ascii=False).encode()
        call.rewrites = tuple(names)
        return await self._send(call, _outgoing(call, headers))

    async def _refuse(
        self, call: Call, status: int, message: str, why: str = "refused", word: str = ""
    ) -> Answer:
        body = error_body(call.route.dialect, status, message, word)
        await call.keep(status, body, message, why)
        return Answer(status, {"content-type": "application/json"}, _once(body))

    async def _send(self, call: Call, headers: dict[str, str]) -> Answer:
        """Try until an answer begins, or the policy gives up."""
        failed: Counter[str] = Counter()
        while True:
            response: httpx2.Response | None = None
            terms = call.admission.terms
            permit = await Permit.take(terms.account, call.admission.closing)
            try:
                response = await self._begin(call, headers)
                return await self._received(call, response, permit)
            except ModelError as refused:
                error = refused
                permit.give_back(error)
            except BaseException:
                permit.give_back(ModelError("it was not made"))
                raise
            failed[error.kind] += 1
            if response is not None:
                await response.aclose()
            if failed[error.kind] >= self._policy.tries.get(error.kind, 0):
                return await self._give_up(call, response, error)
            wait_s = self._policy.wait_s(error, failed[error.kind])
            call.tries.append(RetryNotice(len(call.tries) + 1, error.kind, wait_s, str(error)))
            await asyncio.sleep(wait_s)

    async def _begin(self, call: Call, headers: dict[str, str]) -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 - start-up time

        terms = call.admission.terms
        url = terms.base_url.rstrip("/") + call.route.upstream
        request = self._client.build_request(
            "POST",
            url,
            content=call.sent,
            headers=headers,
            timeout=timeouts(terms.entry.stall_s),
        )
        try:
            return await self._client.send(request, stream=True, follow_redirects=False)
        except httpx2.HTTPError as error:
            raise Unreachable(f"the provider does not answer: {error}") from error

    async def _received(self, call: Call, response: "httpx2.Response", permit: Permit) -> Answer:
        """An answer that has begun, or the error that it is. Raises ModelError."""
        parts = response.aiter_bytes()
        first = await _first(parts)
        if response.status_code != 200:
            raise _error(response, first + await _rest(parts, _MOST_ERROR_BYTES))
        headers = {
            name: response.headers[name] for name in _HEADERS_BACK if name in response.headers
        }
        if not call.admission.terms.whole_answers:
            return Answer(200, headers, self._stream(call, response, first, parts, permit))
        body = first + await _rest(parts, MOST_ANSWER_BYTES)
        kind = response.headers.get("content-type", "")
        if call.route.is_billed and not told(call.route.dialect, kind, body).whole:
            raise DroppedStream("the answer ended before it was whole")
        await response.aclose()
        permit.give_back()
        await call.keep(200, body, content_type=kind)
        secret = SecretStream(call.admission.terms.key)
        return Answer(200, headers, _once(secret.clean(body) + secret.rest()))

    async def _give_up(
        self, call: Call, response: "httpx2.Response | None", error: ModelError
    ) -> Answer:
        status = 502 if response is None or response.status_code < 400 else response.status_code
        message = Secrets({"key": call.admission.terms.key}).replace_text(str(error))
        body = error_body(call.route.dialect, status, message, error.kind)
        await call.keep(status, body, message, error.kind)
        return Answer(status, {"content-type": "application/json"}, _once(body))

    async def _stream(
        self,
        call: Call,
        response: "httpx2.Response",
        first: bytes,
        parts: AsyncIterator[bytes],
        permit: Permit,
    ) -> AsyncIterator[bytes]:
        """Bytes as they come; the last of them once the exchange has been kept."""
        secret = SecretStream(call.admission.terms.key)
        seen, size, waiting = [first], len(first), secret.clean(first)
        broken: ModelError | None = None
        error, why = "the session hung up", HUNG_UP
        try:
            with call.admission.calling():
                async for part in _unbroken(parts):
                    seen.append(part)
                    size += len(part)
                    if size > MOST_ANSWER_BYTES:
                        raise DroppedStream(f"the answer is longer than {MOST_ANSWER_BYTES} bytes")
                    if waiting:
                        yield waiting
                    waiting = secret.clean(part)
                error = why = ""
        except DroppedStream as dropped:
            broken, error, why = dropped, str(dropped), dropped.kind
        except asyncio.CancelledError:
            _raise_unless_closed(call.admission)
            error = "the session ended"
        except Refused as refused:
            error = refused.message
        finally:
            permit.give_back(broken)
            await response.aclose()
            kind = response.headers.get("content-type", "")
            await call.keep(200, b"".join(seen), error, why, kind)
        if error:
            raise ConnectionResetError(error)
        yield waiting + secret.rest()


def _raise_unless_closed(admission: Admission) -> None:
    """Inside of an `except CancelledError`: the session's end is the one cause that is ours."""
    task = asyncio.current_task()
    if not admission.closing.is_set() or task is None:
        raise  # noqa: PLE0704 - the handler's own
    task.uncancel()


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


async def _unbroken(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts; a connection that breaks is a DroppedStream."""
    import httpx2  # noqa: PLC0415

    try:
        async for part in parts:
            yield part
    except httpx2.HTTPError as broken:
        raise DroppedStream(f"the stream broke: {broken}") from broken


async def _rest(parts: AsyncIterator[bytes], most: int) -> bytes:
    """What is left of a body. Raises DroppedStream where it breaks or is longer than ``most``."""
    data = bytearray()
    async for part in _unbroken(parts):
        data += part
        if len(data) > most:
            raise DroppedStream(f"the answer is longer than {most} bytes")
    return bytes(data)


def _error(response: "httpx2.Response", body: bytes) -> ModelError:
    try:
        value = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace")[:500]
    wait_s = retry_after_s(response.headers)
    return failures.from_status(response.status_code, value, retry_after=wait_s)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
