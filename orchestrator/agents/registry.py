"""Harnesses by short name; each is imported when it is asked for."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.agents.harnesses.base import Harness

_FOLDER = "orchestrator.agents.harnesses"
HARNESSES: Mapping[str, str] = {
    "claude-code": f"{_FOLDER}.claude_code:ClaudeCode",
    "codex": f"{_FOLDER}.codex:Codex",
    "gemini-cli": f"{_FOLDER}.gemini_cli:GeminiCli",
    "mini-swe-agent": f"{_FOLDER}.mini_swe_agent:MiniSweAgent",
    "opencode": f"{_FOLDER}.opencode:OpenCode",
    "qwen-code": f"{_FOLDER}.qwen_code:QwenCode",
}


class UnknownHarness(UserError):
    """No harness of that name."""


def harness(name: str) -> "Harness":
    """The harness of a short name, or of ``package.module:Class``. Raises UnknownHarness."""
    place = HARNESSES.get(name, name if ":" in name else "")
    if not place:
        near = difflib.get_close_matches(name, HARNESSES, n=1) or [", ".join(HARNESSES)]
        raise UnknownHarness(f"no harness named `{name}`; did you mean {near[0]}?")
    module, _, attribute = place.partition(":")
    try:
        found: Harness = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise UnknownHarness(f"harness `{name}` cannot be loaded: {error}") from error
    return found
