"""Streamed answers of a chat-completions server, as fixed bytes."""

import json
from typing import Any

from model_servers import Canned


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish", None)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "m", "choices": [choice]}).encode() + b"\n\n"


def answer(*calls: tuple[str, str], text: str = "", finish: str = "", model: str = "m") -> Canned:
    tools = [
        {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    delta = {"role": "assistant", "content": text} | ({"tool_calls": tools} if tools else {})
    last = chunk(finish=finish or ("tool_calls" if tools else "stop"))
    parts = [chunk(**delta), last, b"data: [DONE]\n\n"]
    return Canned(
        [part.replace(b'"model": "m"', b'"model": "%s"' % model.encode()) for part in parts]
    )


WRITE = ("write", json.dumps({"path": "solution.py", "content": "x = 1\n"}))
SUBMIT = answer(WRITE, ("submit", "{}"))
