"""OpenCode."""

import json
from pathlib import Path
from typing import Any

from orchestrator.agents.harnesses.base import (
    Launch,
    NativeLog,
    Package,
    Route,
    json_lines,
    program,
    total,
)
from transcripts.records import Usage


class OpenCode:
    """`opencode run --format json`; a step that finished with "stop" is the end."""

    name = "opencode"
    package = Package("npm", "opencode-ai", "1.18.33")
    dialect = "openai"
    whole_answers = False

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        opencode = program(root, inside, "node_modules/opencode-linux-*/bin/opencode")
        model = f"gateway/{route.model}"
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": route.base_url, "apiKey": "{env:GATEWAY_TOKEN}"},
            "models": {route.model: {}},
        }
        config = {
            "provider": {"gateway": provider},
            "model": model,
            "small_model": model,
            "autoupdate": False,
            "share": "disabled",
            "agent": {"title": {"disable": True}},
            "permission": "allow",
        }
        return Launch(
            [opencode, "run", "--format", "json"],
            env={
                "GATEWAY_TOKEN": route.token,
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
            },
            stdin=prompt,  # as an argument it would be quoted once more, and its quotes escaped
            files={".config/opencode/opencode.json": json.dumps(config)},
        )

    def read(self, log: str) -> NativeLog:
        """See `Harness.read`."""
        events = list(json_lines(log))
        calls = sum(event["type"] == "tool_use" for event in events)
        steps = [event["part"] for event in events if event["type"] == "step_finish"]
        usage = total(_usage(step["tokens"]) for step in steps)
        finished = bool(steps) and steps[-1]["reason"] == "stop"
        error = next((json.dumps(e["error"]) for e in events if e["type"] == "error"), "")
        return NativeLog(finished, "" if finished else error or "no last step", calls, usage)


def _usage(tokens: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=tokens["input"],
        cache_read_tokens=tokens["cache"]["read"],
        cache_write_5m_tokens=tokens["cache"]["write"],
        output_tokens=tokens["output"] + tokens["reasoning"],
        reasoning_tokens=tokens["reasoning"],
    )
