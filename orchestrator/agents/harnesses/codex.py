"""Codex."""

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

_CALLS = ("command_execution", "file_change", "mcp_tool_call")


class Codex:
    """`codex exec --json`; a turn that completed is the end."""

    name = "codex"
    package = Package("npm", "@openai/codex", "0.171.0")
    dialect = "openai-responses"
    whole_answers = False

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        codex = program(root, inside, "node_modules/@openai/codex-linux-*/vendor/*/bin/codex")
        config = (
            f"model = {json.dumps(route.model)}\n"
            'model_provider = "gateway"\n'
            "check_for_update_on_startup = false\n"
            "[analytics]\nenabled = false\n"
            "[model_providers.gateway]\n"
            f'name = "gateway"\nbase_url = {json.dumps(route.base_url)}\n'
            'env_key = "GATEWAY_TOKEN"\nwire_api = "responses"\n'
        )
        # The sandbox is ours: its own would need privileges that there are none of inside.
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return Launch(
            [codex, "exec", "--json", *options, prompt],
            env={"GATEWAY_TOKEN": route.token},
            files={".codex/config.toml": config},
        )

    def read(self, log: str) -> NativeLog:
        """See `Harness.read`."""
        events = list(json_lines(log))
        done = [event["item"] for event in events if event["type"] == "item.completed"]
        calls = sum(item["type"] in _CALLS for item in done)
        usage = total(_usage(e["usage"]) for e in events if e["type"] == "turn.completed")
        failed = next((event for event in events if event["type"] == "turn.failed"), None)
        if failed:
            return NativeLog(False, str(failed["error"]["message"]), calls, usage)
        return NativeLog(usage is not None, "" if usage else "no turn completed", calls, usage)


def _usage(said: dict[str, Any]) -> Usage:
    cached, written = said.get("cached_input_tokens", 0), said.get("cache_write_input_tokens", 0)
    return Usage(
        input_tokens=said["input_tokens"] - cached - written,
        cache_read_tokens=cached,
        cache_write_5m_tokens=written,
        output_tokens=said["output_tokens"],
        reasoning_tokens=said.get("reasoning_output_tokens", 0),
    )
