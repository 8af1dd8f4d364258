"""A provider on this machine, and a session at the gateway with the real SDKs."""

import http.server
import json
import threading
from typing import Any

import anthropic
import httpx2
import openai

from orchestrator.gateway.admission import Admission
from orchestrator.gateway.server import Gateway
from orchestrator.gateway.terms import Exchange, Terms
from orchestrator.models.entry import ModelEntry, Prices, Rates

KEY = "sk-secret-0123456789abcdef"


class Upstream:
    """A provider on this machine: answers are functions of the request, requests are kept."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answers: list[Any] = []  # (status, headers, parts) each, the last one again and again
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                status, headers, parts = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in parts:
                    if part is None:  # hang up in the middle
                        self.close_connection = True
                        self.connection.close()
                        return
                    data = part(self.headers) if callable(part) else part
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *words: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def chat_stream(text: str = "hello", model: str = "m-1", usage: bool = True) -> list[bytes]:
    chunks: list[dict[str, Any]] = [
        {
            "model": model,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}],
        },
        {"model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    if usage:
        told = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        chunks.append({"model": model, "choices": [], "usage": told})
    head = {"id": "x", "object": "chat.completion.chunk", "created": 0}
    events = [b"data: " + json.dumps({**head, **chunk}).encode() + b"\n\n" for chunk in chunks]
    return [*events, b"data: [DONE]\n\n"]


STREAM = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}


def entry(protocol: str = "openai", **more: Any) -> ModelEntry:
    prices = Prices(source="a test", date="2026-01-01", rates=(Rates(input=1.0, output=2.0),))
    given = {"name": "m", "protocol": protocol, "model": "m-1", "base_url": "http://x", **more}
    return ModelEntry(**{"prices": prices, **given})


class Session:
    """An admitted session and the real SDKs, speaking through its socket."""

    def __init__(self, gateway: Gateway, terms: Terms, kept: list[Exchange]) -> None:
        self.admission: Admission = gateway.admit(terms)
        self.exchanges = kept
        transport = httpx2.HTTPTransport(uds=str(self.admission.socket))
        self.http = httpx2.Client(transport=transport, base_url="http://gateway", timeout=30)

    def openai(self, token: str = "") -> openai.OpenAI:
        return openai.OpenAI(
            api_key=token or self.admission.token,
            base_url="http://gateway/openai/v1",
            http_client=self.http,
            max_retries=0,
        )

    def anthropic(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            api_key=self.admission.token,
            base_url="http://gateway/anthropic",
            http_client=self.http,
            max_retries=0,
        )

    def post(self, path: str, body: bytes, **headers: str) -> httpx2.Response:
        sent = {"authorization": f"Bearer {self.admission.token}", **headers}
        return self.http.post(path, content=body, headers=sent)
