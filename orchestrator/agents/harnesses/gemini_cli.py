"""Gemini CLI."""

import json
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

_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}


class GeminiCli:
    """`gemini -p`, events as JSON lines, the last one a result with statistics."""

    name = "gemini-cli"
    package = Package("npm", "@google/gemini-cli", "0.61.0")
    dialect = "gemini"
    whole_answers = True

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        gemini = program(root, inside, "node_modules/@google/gemini-cli/bundle/gemini.js")
        options = ["--yolo", "--output-format", "stream-json"]
        return Launch(
            ["node", gemini, "-m", route.model, *options, "-p", prompt],
            env={
                "GEMINI_API_KEY": route.token,
                "GOOGLE_GEMINI_BASE_URL": route.base_url,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            files={".gemini/settings.json": json.dumps(_SETTINGS)},
        )

    def read(self, log: str) -> NativeLog:
        """See `Harness.read`."""
        events = list(json_lines(log))
        calls = sum(event.get("type") == "tool_use" for event in events)
        result = next((event for event in events if event.get("type") == "result"), None)
        if result is None:
            return NativeLog(False, "no result event", calls)
        stats = result.get("stats") or {}
        cached = stats.get("cached", 0)
        usage = Usage(
            input_tokens=stats.get("input_tokens", 0) - cached,
            cache_read_tokens=cached,
            # Thoughts are in the total alone.
            output_tokens=stats.get("total_tokens", 0) - stats.get("input_tokens", 0),
        )
        finished = result["status"] == "success"
        error = "" if finished else json.dumps(result.get("error"))
        return NativeLog(finished, error, calls, usage)
