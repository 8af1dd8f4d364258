"""Changes of a request on its way out. Each has a name, which is kept with the exchange."""

from typing import Any

from orchestrator.gateway.routes import ANTHROPIC, CHAT, GEMINI, RESPONSES, Route
from orchestrator.gateway.terms import Refused, Terms

_DEFAULTS = ("max_tokens", "stream_options")
"""Fields that a request of the session's may set itself."""

_PROVIDER_FIELDS = {
    ANTHROPIC: ("mcp_servers", "container"),
    CHAT: ("web_search_options", "plugins"),
    RESPONSES: (),
    GEMINI: (),
}
_OWN_TOOLS = {
    ANTHROPIC: ("custom", "bash_", "text_editor_", "computer_", "memory_"),
    CHAT: ("function", "custom"),
    RESPONSES: ("function", "custom", "local_shell", "shell", "apply_patch"),
}
"""Beginnings of types of tools that the session's side executes; all others are a provider's."""


_OWN_GEMINI = ("functionDeclarations", "function_declarations", "computerUse", "computer_use")


def rewritten(
    route: Route, request: dict[str, Any], terms: Terms
) -> tuple[dict[str, Any], list[str]]:
    """What to send, and the names of the changes. Raises Refused for what must not be sent."""
    sent, names = dict(request), list[str]()
    _model(route, sent, terms, names)
    if route.is_billed:  # counting tokens takes no sampling and no limit
        _pinned(sent, terms, names)
    if not terms.allow_provider_tools:
        without = _without_google if route.dialect == GEMINI else _without_provider_tools
        without(route.dialect, sent, names)
    return sent, names


def _model(route: Route, sent: dict[str, Any], terms: Terms, names: list[str]) -> None:
    asked = route.model or sent.get("model")
    if asked == terms.entry.model:
        return
    if terms.side_models == "refuse":
        raise Refused(
            "side_model",
            f"this session is of `{terms.entry.model}`; `{asked}` is another model and is refused",
        )
    if route.model is None:  # else the route has put it into the path
        sent["model"] = terms.entry.model
    names.append("model:mapped")


def _pinned(sent: dict[str, Any], terms: Terms, names: list[str]) -> None:
    """Effort, sampling, provider and whatever else the roster says, whatever the session says."""
    for name, value in terms.entry.request_params().items():
        if name in _DEFAULTS and (name in sent or not _wants(name, sent)):
            continue
        before = sent.get(name)
        pinned = _merged(before, value) if name == "generationConfig" else value
        if before != pinned:
            sent[name] = pinned
            names.append(f"pinned:{name}")


def _merged(before: Any, value: Any) -> Any:
    both = isinstance(before, dict) and isinstance(value, dict)
    return {**before, **value} if both else value


def _wants(name: str, sent: dict[str, Any]) -> bool:
    return name != "stream_options" or bool(sent.get("stream"))


def _without_google(dialect: str, sent: dict[str, Any], names: list[str]) -> None:
    """Gemini names a tool by its field; only functions can be forced."""
    del dialect
    tools = sent.get("tools")
    if not isinstance(tools, list):
        return
    kept = []
    for tool in tools:
        fields = tool if isinstance(tool, dict) else {"?": tool}
        own = {name: value for name, value in fields.items() if name in _OWN_GEMINI}
        names += [f"provider-tools:{name}" for name in fields if name not in own]
        kept += [own] if own else []
    sent["tools"] = kept


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
