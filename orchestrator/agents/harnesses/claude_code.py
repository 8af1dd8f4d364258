"""Claude Code."""

from pathlib import Path

from orchestrator.agents.harnesses.base import (
    Launch,
    NativeLog,
    Package,
    Route,
    json_lines,
    program,
)
from orchestrator.models.anthropic_reply import usage_of


class ClaudeCode:
    """`claude -p`, events as JSON lines, the last one a result."""

    name = "claude-code"
    package = Package("npm", "@anthropic-ai/claude-code", "2.1.332")
    dialect = "anthropic"
    whole_answers = False

    def launch(self, root: Path, inside: str, route: Route, prompt: str) -> Launch:
        """See `Harness.launch`."""
        claude = program(root, inside, "node_modules/@anthropic-ai/claude-code-linux-*/claude")
        options = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
        return Launch(
            [claude, "-p", prompt, "--model", route.model, *options],
            env={
                "ANTHROPIC_BASE_URL": route.base_url,
                "ANTHROPIC_API_KEY": route.token,
                # Titles and topics would be asked of a model that nobody chose.
                "ANTHROPIC_SMALL_FAST_MODEL": route.model,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "IS_SANDBOX": "1",  # it refuses to skip permissions as root elsewhere
            },
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
        error = str(result.get("result") or result["subtype"]) if result["is_error"] else ""
        return NativeLog(not result["is_error"], error, calls, usage_of(result["usage"]))
