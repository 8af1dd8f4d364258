"""One tiny paid request a model: does its key, its route and its tool calling work?"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from orchestrator.models.base import Conversation, ModelReply, ToolSpec, UserTurn
from orchestrator.models.connect import client
from orchestrator.models.entry import MissingKey, ModelEntry
from orchestrator.models.errors import ModelError
from orchestrator.models.retry import ONCE

TOOL = ToolSpec(
    name="report",
    description="Report that you can call tools.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": ["ready"]}},
        "required": ["word"],
    },
)
_QUESTION = "Call the tool `report` with the word `ready`. Say nothing else."
_STALL_S = 90.0
_AT_ONCE = 8


@dataclass(frozen=True)
class CheckedModel:
    """What works and, where something does not, why and what to do."""

    model: str
    route: str
    ok: bool
    problem: str = ""  # "missing_key", a kind of `models.errors`, "no_tool_call"
    message: str = ""
    served_model: str | None = None
    latency_s: float | None = None
    cost_usd: float | None = None


def check(entry: ModelEntry, base_url: str | None = None) -> CheckedModel:
    """Ask once, without retries."""
    asked = entry.model_copy(update={"stall_s": min(entry.stall_s, _STALL_S)})
    try:
        model = client(asked, base_url_override=base_url, policy=ONCE)
    except MissingKey as error:
        return CheckedModel(entry.name, entry.route, False, "missing_key", str(error))
    try:
        reply = model.reply(Conversation("", [UserTurn(_QUESTION)]), [TOOL], lambda _: None)
    except ModelError as error:
        message = f"{error}; {_advice(entry, error.kind)}"
        return CheckedModel(entry.name, entry.route, False, error.kind, message)
    finally:
        model.close()
    return _answered(entry, reply)


def check_all(entries: Sequence[ModelEntry]) -> list[CheckedModel]:
    """Check several models side by side, in their order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(check, entries))


def _answered(entry: ModelEntry, reply: ModelReply) -> CheckedModel:
    called = any(call.name == TOOL.name for call in reply.tool_calls)
    return CheckedModel(
        model=entry.name,
        route=entry.route,
        ok=called,
        problem="" if called else "no_tool_call",
        message=""
        if called
        else f"it answered without calling the tool ({reply.stop_reason}: {reply.text[:80]!r}); "
        "an agent needs tool calling: is it enabled on the server?",
        served_model=reply.served_model,
        latency_s=reply.latency_s,
        cost_usd=entry.cost_usd(reply.usage),
    )


def _advice(entry: ModelEntry, kind: str) -> str:
    return {
        "bad_key": f"is the key in {entry.key} right, and may it use `{entry.model}`?",
        "quota": "the account has no money or quota left",
        "rate_limit": "the account is at its limit now; try again later",
        "bad_request": f"is `{entry.model}` the model's id at {entry.base_url}, and are its "
        "`params` right?",
        "unreachable": f"does {entry.base_url} answer from here (address, proxy, firewall)?",
        "malformed": f"does {entry.base_url} speak the protocol `{entry.protocol}`?",
        "dropped_stream": f"does {entry.base_url} stream the protocol `{entry.protocol}`?",
    }.get(kind, "the provider is at fault; try again later")
