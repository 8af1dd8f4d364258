"""Changes of a request on its way out. Each has a name, which is kept with the exchange."""

from typing import Any

from orchestrator.gateway.routes import ANTHROPIC, CHAT, RESPONSES
from orchestrator.gateway.terms import Refused, Terms

_DEFAULTS = ("max_tokens", "stream_options")
"""Fields that a request of the session's may set itself."""

_PROVIDER_FIELDS = {
    ANTHROPIC: ("mcp_servers", "container"),
    CHAT: ("web_search_options", "plugins"),
    RESPONSES: (),
}
_OWN_TOOLS = {
    ANTHROPIC: ("custom", "bash_", "text_editor_", "computer_", "memory_"),
    CHAT: ("function", "custom"),
    RESPONSES: ("function", "custom", "local_shell", "shell", "apply_patch"),
}
"""Beginnings of types of tools that the session's side executes; all others are a provider's."""


def rewritten(
    dialect: str, request: dict[str, Any], terms: Terms
) -> tuple[dict[str, Any], list[str]]:
    """What to send, and the names of the changes. Raises Refused for what must not be sent."""
    sent, names = dict(request), list[str]()
    _model(sent, terms, names)
    _pinned(sent, terms, names)
    if not terms.allow_provider_tools:
        _without_provider_tools(dialect, sent, names)
    return sent, names


def _model(sent: dict[str, Any], terms: Terms, names: list[str]) -> None:
    asked = sent.get("model")
    if asked == terms.entry.model:
        return
    if terms.side_models == "refuse":
        raise Refused(
            "side_model",
            f"this session is of `{terms.entry.model}`; `{asked}` is another model and is refused",
        )
    sent["model"] = terms.entry.model
    names.append("model:mapped")


def _pinned(sent: dict[str, Any], terms: Terms, names: list[str]) -> None:
    """Effort, sampling, provider and whatever else the roster says, whatever the session says."""
    for name, value in terms.entry.request_params().items():
        if name in _DEFAULTS and (name in sent or not _wants(name, sent)):
            continue
        if sent.get(name) != value:
            sent[name] = value
            names.append(f"pinned:{name}")


def _wants(name: str, sent: dict[str, Any]) -> bool:
    return name != "stream_options" or bool(sent.get("stream"))


def _without_provider_tools(dialect: str, sent: dict[str, Any], names: list[str]) -> None:
    for field in _PROVIDER_FIELDS[dialect]:
        if sent.pop(field, None) is not None:
            names.append(f"provider-tools:{field}")
    tools = sent.get("tools")
    if not isinstance(tools, list):
        return
    kept = [tool for tool in tools if _is_own(dialect, tool)]
    if len(kept) == len(tools):
        return
    for tool in tools:
        if tool not in kept:
            names.append(f"provider-tools:{_type(tool)}")
    choice = sent.get("tool_choice")
    forced = choice.get("name") or choice.get("type") if isinstance(choice, dict) else None
    if forced and any(forced in (t.get("name"), _type(t)) for t in tools if t not in kept):
        raise Refused("provider_tool", f"the tool `{forced}` runs at the provider and is refused")
    sent["tools"] = kept
    if not kept:
        del sent["tools"]
        sent.pop("tool_choice", None)


def _is_own(dialect: str, tool: Any) -> bool:
    kind = _type(tool)
    return kind == "" or kind.startswith(_OWN_TOOLS[dialect])


def _type(tool: Any) -> str:
    return str(tool.get("type") or "") if isinstance(tool, dict) else "?"
