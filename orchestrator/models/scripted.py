"""The built-in models' server: real HTTP and server-sent events on the loopback, every dialect.

It keeps no sessions: the step of a story is read from the request, the task from what the
user said. Only the number of tries of one and the same request is counted, to fail the first ones.
"""

import asyncio
import hashlib
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UserError
from orchestrator.models.base import SUMMARY_CUE
from orchestrator.models.foreign_tools import Foreign, speaks_our_tools
from orchestrator.models.knobs import Knobs, UnknownKnob, split_suffix
from orchestrator.models.scripted_anthropic import AnthropicWire
from orchestrator.models.scripted_gemini import GeminiWire
from orchestrator.models.scripted_openai import OpenAIWire
from orchestrator.models.scripted_responses import ResponsesWire
from orchestrator.models.scripted_wire import CHARS_PER_TOKEN, Asked, Wire
from orchestrator.models.stories import (
    FOREIGN_STORIES,
    PLANNED_FAULTS,
    STORIES,
    Say,
    Story,
    without_task,
)
from orchestrator.models.story_tasks import Library, TaskScript

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
_ERRORS = {"e429": 429, "e500": 500, "e529": 529}
_SPOILT = ("drop", "cut", "malformed", "empty", "refusal", "length", "garbled")
_CLOSING_EVENTS = 3
"""Finish, usage and terminator: a broken stream ends well before them."""
_BASE_PATHS = {"openai": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": "/v1beta"}
_MOST_COUNTED = 10_000
"""Requests whose tries are remembered at a time."""


class PortInUse(UserError):
    """The port cannot be had."""


class ScriptedServer:
    """A context manager; the server runs in a thread of its own."""

    def __init__(
        self,
        knobs: Knobs | None = None,
        *,
        port: int = 0,
        library: Library | None = None,
        on_answer: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """``on_answer`` is told each whole answer that is sent without a fault, on our thread."""
        self._theatre = _Theatre(knobs or Knobs(), library, on_answer)
        self._port = port
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen. Raises PortInUse."""
        import uvicorn  # noqa: PLC0415 - start-up time

        self._socket = _listen(self._port)
        config = uvicorn.Config(
            self._theatre.app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=60,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="scripted-server", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and wait for the thread."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=5)
        if self._socket is not None:
            self._socket.close()

    def base_url(self, protocol: str) -> str:
        """What a client of ``protocol`` (see `ModelEntry.protocol`) takes as base URL."""
        assert self._socket is not None, "start the server first"
        root = f"http://{HOST}:{self._socket.getsockname()[1]}"
        return root + _BASE_PATHS[protocol]

    def __enter__(self) -> "ScriptedServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listen(port: int) -> socket.socket:
    # asyncio turns Nagle's delay off only where the protocol is named: else 40 ms an answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(1024)  # connections wait here while the thread starts
    except (OSError, OverflowError) as error:
        listener.close()
        raise PortInUse(
            f"port {port} of {HOST} cannot be had: {error}; "
            "stop what uses it, choose another with --port, or take a free one with --port 0"
        ) from error
    return listener


class _Refused(Exception):
    """A request that gets an error; ``args``: status, text."""


class _Theatre:
    """Plays the stories to requests."""

    def __init__(
        self, knobs: Knobs, library: Library | None, on_answer: Callable[[dict[str, Any]], None]
    ) -> None:
        self._knobs = knobs
        self._on_answer = on_answer
        self._given = library
        self._tries: Counter[str] = Counter()

    @cached_property
    def _library(self) -> Library:
        return self._given or Library()

    @cached_property
    def app(self) -> Any:
        """The ASGI application."""
        from starlette.applications import Starlette  # noqa: PLC0415 - start-up time
        from starlette.requests import Request  # noqa: PLC0415
        from starlette.responses import JSONResponse, Response  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415

        async def chat(request: Request) -> Response:
            return await self._answer(request, OpenAIWire())

        async def messages(request: Request) -> Response:
            return await self._answer(request, AnthropicWire())

        async def responses(request: Request) -> Response:
            return await self._answer(request, ResponsesWire())

        async def gemini(request: Request) -> Response:
            return await self._gemini(request)

        async def count(request: Request) -> Response:
            return JSONResponse({"input_tokens": len(await request.body()) // CHARS_PER_TOKEN})

        async def models(request: Request) -> Response:
            del request
            data = [{"id": name, "object": "model", "owned_by": "scripted"} for name in STORIES]
            return JSONResponse({"object": "list", "data": data})

        return Starlette(
            routes=[
                Route("/v1/chat/completions", chat, methods=["POST"]),
                Route("/v1/responses", responses, methods=["POST"]),
                Route("/v1/messages", messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", count, methods=["POST"]),
                Route("/v1beta/models/{call:path}", gemini, methods=["POST"]),
                Route("/v1/models", models, methods=["GET"]),
            ]
        )

    async def _gemini(self, http: "Request") -> "Response":
        """The dialect that names model and verb in the path."""
        from starlette.responses import JSONResponse  # noqa: PLC0415

        model, _, verb = http.path_params["call"].rpartition(":")
        if verb == "countTokens":
            return JSONResponse({"totalTokens": len(await http.body()) // CHARS_PER_TOKEN})
        if verb not in ("generateContent", "streamGenerateContent"):
            return JSONResponse(GeminiWire().error(404, f"no `{verb}` here"), 404)
        named = {"model": model, "stream": verb == "streamGenerateContent"}
        return await self._answer(http, GeminiWire(), named)

    async def _answer(
        self, http: "Request", wire: Wire, named: Mapping[str, Any] | None = None
    ) -> "Response":
        from starlette.responses import JSONResponse  # noqa: PLC0415

        from tasks.errors import TaskError  # noqa: PLC0415

        body = await http.body()
        try:
            request = {**_json(body), **(named or {})}
            name, knobs = self._model(request)
            asked = wire.read(request, len(body))
            _refuse_long(asked, knobs)
            say = self._say(name, asked, knobs, wire, request)
            if knobs.summaries and _asks_summary(request):
                say = Say(f"Summary: {asked.step} steps were played.")
        except _Refused as refused:
            status, text = refused.args
            return JSONResponse(wire.error(status, text), status)
        except TaskError as error:
            return JSONResponse(wire.error(400, str(error)), 400)
        except (KeyError, TypeError, ValueError) as error:
            return JSONResponse(wire.error(400, f"not a request of this protocol: {error!r}"), 400)
        await asyncio.sleep(knobs.latency_ms / 1000)
        key = http.headers.get("idempotency-key", "")
        fault = self._fault(name, asked.step, knobs, f"{key}{_said(request)}".encode())
        if fault in _ERRORS:
            return _error(wire, _ERRORS[fault], knobs)
        message = wire.message(_spoilt(say, fault), asked, request)
        _stop(message, fault)
        if knobs.impostor:
            message["model"] = "impostor"
        if fault is None:
            self._on_answer(message)
        if request.get("stream"):
            return _stream(wire.stream(message), fault, knobs)
        return _at_once(_unstreamed(message), fault)

    def _model(self, request: Mapping[str, Any]) -> tuple[str, Knobs]:
        name, suffix = split_suffix(request["model"])
        if name not in STORIES:
            raise _Refused(404, f"no model `{name}` here; there are {', '.join(STORIES)}")
        try:
            return name, self._knobs.overridden(suffix)
        except UnknownKnob as error:
            raise _Refused(400, str(error)) from error

    def _say(
        self, name: str, asked: Asked, knobs: Knobs, wire: Wire, request: Mapping[str, Any]
    ) -> Say:
        script = self._recognise(asked.user_text)
        if script is None:
            return without_task([one.name for one in self._library.scripts], asked.tools)
        if speaks_our_tools(asked.tools, request):
            return self._told(STORIES[name], script, asked, knobs, wire)
        foreign = Foreign(asked.tools, json.dumps(request))
        if not foreign.can_play:
            return Say(f"Work on {script.name}")
        return foreign.said(self._told(FOREIGN_STORIES[name], script, asked, knobs, wire))

    @staticmethod
    def _told(story: Story, script: TaskScript, asked: Asked, knobs: Knobs, wire: Wire) -> Say:
        if knobs.strict_reasoning:
            for step, carried in asked.carried_reasoning:
                if carried != wire.reasoning(story(script, step, knobs), step):
                    raise _Refused(400, f"the reasoning of step {step} did not come back as it was")
        return story(script, asked.step, knobs)

    @cached_property
    def _recognise(self) -> Any:
        return lru_cache(maxsize=64)(self._library.recognise)

    def _fault(self, name: str, step: int, knobs: Knobs, request: bytes) -> str | None:
        rates = {
            fault: getattr(knobs, fault)
            for fault in (*_ERRORS, *_SPOILT)
            if getattr(knobs, fault) > 0
        }
        if name not in PLANNED_FAULTS and not rates:
            return None
        digest = hashlib.sha256(request).hexdigest()
        number = self._tries[digest]
        if len(self._tries) > _MOST_COUNTED:
            self._tries.clear()
        self._tries[digest] += 1
        planned = PLANNED_FAULTS.get(name, {}).get(step, ())
        if number < len(planned):
            return planned[number]
        draw = random.Random(f"{knobs.seed}:{digest}:{number}").random  # noqa: S311 - a test's dice
        return next((fault for fault, rate in rates.items() if draw() < rate), None)


def _spoilt(say: Say, fault: str | None) -> Say:
    """What is said instead under a fault of the answer itself."""
    if fault == "empty":
        return Say()
    if fault == "refusal":
        return Say("I'm sorry, but I can't help with that.")
    if fault == "length":
        cut = tuple((name, arguments[: len(arguments) // 2]) for name, arguments in say.calls)
        return Say(say.text, cut, say.reasoning)
    if fault == "garbled":
        return Say(f"{say.text}{_GARBLE}", say.calls, say.reasoning)
    return say


_GARBLE = "<garble>"
"""Stands where bytes that are not UTF-8 are sent."""

_STOPS = {"refusal": ("content_filter", "refusal"), "length": ("length", "max_tokens")}


def _stop(message: dict[str, Any], fault: str | None) -> None:
    """Say why the answer stopped, as each protocol does."""
    if fault not in _STOPS:
        return
    chat, messages = _STOPS[fault]
    if "choices" in message:
        message["choices"][0]["finish_reason"] = chat
    else:
        message["stop_reason"] = messages


def _refuse_long(asked: Asked, knobs: Knobs) -> None:
    """A prompt that does not fit is refused in the words of both protocols' providers."""
    most = knobs.context_tokens
    if most and asked.prompt_tokens > most:
        raise _Refused(
            400,
            f"prompt is too long: {asked.prompt_tokens} tokens > {most} maximum "
            f"(this model's maximum context length is {most} tokens)",
        )


def _asks_summary(request: Mapping[str, Any]) -> bool:
    newest = (request.get("messages") or [""])[-1]
    return SUMMARY_CUE in json.dumps(newest)


def _json(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise TypeError("the body is not a JSON object")
    return value


def _error(wire: Wire, status: int, knobs: Knobs) -> "Response":
    from starlette.responses import JSONResponse  # noqa: PLC0415

    headers = {"Retry-After": f"{knobs.retry_after_s:g}"} if status == 429 else {}
    name = "overloaded" if status == 529 else HTTPStatus(status).phrase
    return JSONResponse(wire.error(status, f"scripted fault: {name}"), status, headers)


def _stream(events: list[bytes], fault: str | None, knobs: Knobs) -> "Response":
    from starlette.responses import StreamingResponse  # noqa: PLC0415

    half = max(1, (len(events) - _CLOSING_EVENTS) // 2)
    if fault in ("drop", "cut"):
        events = events[:half]
    elif fault == "malformed":
        events = [*events[:half], b'data: {"choices": [{"delta": {"con\n\n', *events[half:]]

    async def body() -> AsyncIterator[bytes]:
        if knobs.chunk_ms:
            for event in events:
                yield event
                await asyncio.sleep(knobs.chunk_ms / 1000)
        else:
            yield b"".join(events).replace(_GARBLE.encode(), b"\xff\xfe\xed\xa0\x80")
        if fault == "drop":
            raise ConnectionResetError("scripted fault: the stream breaks here")

    return StreamingResponse(body(), media_type="text/event-stream")


def _at_once(message: Mapping[str, Any], fault: str | None) -> "Response":
    """An unstreamed answer; under a fault of streams it ends in its middle, politely or not."""
    from starlette.responses import Response, StreamingResponse  # noqa: PLC0415

    whole = json.dumps(message).encode()
    if fault not in ("drop", "cut", "malformed"):
        return Response(whole, media_type="application/json")

    async def body() -> AsyncIterator[bytes]:
        yield whole[: len(whole) // 2]
        if fault == "drop":
            raise ConnectionResetError("scripted fault: the answer breaks here")

    return StreamingResponse(body(), media_type="application/json")


def _said(request: Mapping[str, Any]) -> str:
    """The conversation: what else a client sends may differ from try to try."""
    return json.dumps([request.get(key) for key in ("messages", "input", "contents")])


def _unstreamed(message: dict[str, Any]) -> dict[str, Any]:
    """The answer as one JSON document: Anthropic tool inputs are objects in it."""
    for block in message.get("content", ()):
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(block["input"])
            except ValueError:
                block["input"] = {"invalid_json": block["input"]}
    return message
