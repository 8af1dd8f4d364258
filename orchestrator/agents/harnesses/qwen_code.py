"""Qwen Code."""

from pathlib import Path

from orchestrator.agents.harnesses.base import (
    Launch,
    NativeLog,
    Package,
    Route,
    json_lines,
    program,
)
from transcripts.records import Usage

_API_ERROR = "[API Error"
"""How the answer starts where no model answered; the result says success all the same."""


class QwenCode:
    """`qwen -p`, events as JSON lines, the last one a result."""

    name = "qwen-code"
    package = Package("npm", "@qwen-code/qwen-code", "0.24.4")
    dialect = "openai"
    whole_answers = True

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        qwen = program(root, inside, "node_modules/@qwen-code/qwen-code/cli-entry.js")
        options = ["--auth-type", "openai", "-y", "--output-format", "stream-json"]
        return Launch(
            ["node", qwen, "-m", route.model, *options, "-p", prompt],
            env={
                "OPENAI_API_KEY": route.token,
                "OPENAI_BASE_URL": route.base_url,
                "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            },
            files={".qwen/settings.json": '{"privacy": {"usageStatisticsEnabled": false}}'},
        )

    def read(self, log: str) -> NativeLog:
        """See `Harness.read`."""
        events = list(json_lines(log))
        calls = sum(
            block["type"] == "tool_use"
            for event in events
            if event["type"] == "assistant"
            for block in event["message"]["content"]
        )
        result = next((event for event in events if event["type"] == "result"), None)
        if result is None:
            return NativeLog(False, "no result event", calls)
        said = str(result.get("result") or result.get("error") or "")
        failed = result["is_error"] or said.startswith(_API_ERROR)
        usage = result.get("usage") or {}
        cached = usage.get("cache_read_input_tokens", 0)
        return NativeLog(
            not failed and usage.get("output_tokens", 0) > 0,
            said if failed else "",
            calls,
            Usage(
                input_tokens=usage.get("input_tokens", 0) - cached,
                cache_read_tokens=cached,
                output_tokens=usage.get("output_tokens", 0),
            ),
        )
