"""Real SDKs against real servers on the loopback: the scripted one, and a canned one."""

import threading
from collections.abc import Callable, Iterator

import pytest

from model_servers import QUICK, Canned, CannedServer
from orchestrator.models.base import ModelClient
from orchestrator.models.connect import client
from orchestrator.models.knobs import Knobs
from orchestrator.models.retry import RetryPolicy
from orchestrator.models.roster import load_roster
from orchestrator.models.scripted import ScriptedServer


@pytest.fixture(scope="session")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(Knobs(retry_after_s=0)) as running:
        yield running


@pytest.fixture
def connect(server: ScriptedServer) -> Iterator[Callable[..., ModelClient]]:
    """connect(model, protocol, policy=..., base_url=...): a client, closed afterwards."""
    opened = []

    def open_client(
        name: str,
        protocol: str,
        *,
        policy: RetryPolicy = QUICK,
        base_url: str | None = None,
        stopping: threading.Event | None = None,
        **changes: object,
    ) -> ModelClient:
        entry = load_roster().resolve(name).model_copy(update={"protocol": protocol, **changes})
        url = base_url or server.base_url(protocol)
        opened.append(client(entry, base_url_override=url, policy=policy, stopping=stopping))
        return opened[-1]

    yield open_client
    for one in opened:
        one.close()


@pytest.fixture
def canned() -> Iterator[Callable[..., CannedServer]]:
    servers = []

    def start(*answers: Canned) -> CannedServer:
        servers.append(CannedServer(*answers))
        return servers[-1]

    yield start
    for one in servers:
        one.close()
