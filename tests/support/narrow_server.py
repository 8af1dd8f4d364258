"""A chat-completions server with room for a few calls at once: one more is a 429."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = (
    b'data: {"model": "m", "choices": [{"index": 0, "delta": {"content": "hello"}, '
    b'"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


class NarrowServer:
    """Refuses what is above ``room``; remembers how many came at once."""

    def __init__(self, room: int, hold_s: float) -> None:
        self.room = room
        self.served = self.refused = self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        owner, holding = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                accepted = owner._enter()
                try:
                    holding.wait(hold_s)  # never set: a provider that thinks
                    self._send(200 if accepted else 429, ANSWER if accepted else b"{}")
                finally:
                    owner._leave()

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                kind = "text/event-stream" if status == 200 else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if status == 429:
                    self.send_header("Retry-After", "0.02")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def _enter(self) -> bool:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            accepted = self._now <= self.room
            self.served += accepted
            self.refused += not accepted
            return accepted

    def _leave(self) -> None:
        with self._lock:
            self._now -= 1

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
