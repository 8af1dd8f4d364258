"""What the tests of models share: tools, a quick retry policy, a server that says fixed bytes."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from orchestrator.models.base import ToolSpec
from orchestrator.models.retry import RetryPolicy

PROTOCOLS = ("openai", "anthropic")
TOOLS = [
    ToolSpec(name, name, {"type": "object", "properties": {}})
    for name in ("bash", "view", "write", "edit", "check", "bench", "submit")
]
QUICK = RetryPolicy(first_wait_s=0.001, longest_wait_s=0.002)


@dataclass
class Canned:
    """One answer: status, headers and the body's parts."""

    parts: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    ping_until: threading.Event | None = None  # then: comments and pings until this is set


class CannedServer:
    """Says the given answers in turn, the last one again and again; remembers what it was asked."""

    def __init__(self, *answers: Canned) -> None:
        self.bodies: list[bytes] = []
        self.keys: list[str | None] = []
        self.answers = list(answers)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.keys.append(self.headers.get("Idempotency-Key"))
                owner.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                answer = owner.answers[min(len(owner.bodies), len(owner.answers)) - 1]
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for part in answer.parts:
                    self.wfile.write(part)
                    self.wfile.flush()
                self._ping(answer.ping_until)

            def _ping(self, until: threading.Event | None) -> None:
                try:
                    while until is not None and not until.wait(0.01):
                        self.wfile.write(b': keep-alive\n\nevent: ping\ndata: {"type": "ping"}\n\n')
                        self.wfile.flush()
                except OSError:
                    pass  # the client has given up, as it should

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
