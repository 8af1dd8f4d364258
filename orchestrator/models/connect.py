"""From a roster entry to a client that can be asked."""

import atexit
from dataclasses import replace
from functools import cache
from threading import Event, Lock

from orchestrator.errors import UserError
from orchestrator.models.accounts import account_of
from orchestrator.models.base import ModelClient
from orchestrator.models.entry import ModelEntry
from orchestrator.models.knobs import Knobs
from orchestrator.models.retry import RetryPolicy
from orchestrator.models.scripted import ScriptedServer
from orchestrator.models.streaming import CallSettings

_starting = Lock()


def client(
    entry: ModelEntry,
    *,
    base_url_override: str | None = None,
    stopping: Event | None = None,
    policy: RetryPolicy | None = None,
) -> ModelClient:
    """A client for one session. Raises MissingKey.

    Built-in models are asked at a scripted server that this process starts once, unless
    ``base_url_override`` names another. ``stopping`` cuts short the waits before retries. Calls
    share the permits of the provider's account, unless ``policy`` is given.
    """
    settings = CallSettings(
        model=entry.model,
        params=dict(entry.request_params()),
        stall_s=entry.stall_s,
        cache=entry.cache,
        policy=policy or replace(RetryPolicy(), account=account_of(entry.base_url, entry.key)),
        stopping=stopping,
    )
    base_url = base_url_override or entry.base_url or shared_server().base_url(entry.protocol)
    key = entry.read_key()
    if entry.protocol not in ("openai", "anthropic"):
        raise UserError(
            f"`{entry.name}` is asked by `{entry.protocol}`, which our own loop does not speak; "
            "run it through a harness (--agent), or by an entry with another protocol"
        )
    if entry.protocol == "anthropic":
        from orchestrator.models.anthropic_client import AnthropicClient  # noqa: PLC0415 - start-up

        return AnthropicClient(settings, base_url=base_url, api_key=key)
    from orchestrator.models.openai_client import OpenAIClient  # noqa: PLC0415

    return OpenAIClient(settings, base_url=base_url, api_key=key)


def provider_url(entry: ModelEntry) -> str:
    """Where the gateway asks an entry's model: what the paths of its routes are added to."""
    base_url = entry.base_url or shared_server().base_url(entry.protocol)
    return base_url.removesuffix("/v1beta") if entry.protocol == "gemini" else base_url


def shared_server() -> ScriptedServer:
    """The scripted server of this process, started at the first call."""
    with _starting:
        return _started()


@cache
def _started() -> ScriptedServer:
    server = ScriptedServer(Knobs())
    server.start()
    atexit.register(server.stop)
    return server
