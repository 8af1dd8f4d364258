"""Sessions of the loop against the scripted server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loop_sessions import LoopSession
from orchestrator.models.knobs import Knobs
from orchestrator.models.scripted import ScriptedServer


@pytest.fixture(scope="session")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(Knobs(retry_after_s=0)) as running:
        yield running


@pytest.fixture
def session(tmp_path: Path, server: ScriptedServer) -> Callable[..., LoopSession]:
    """session(model, protocol="openai", ...): one in a folder of its own."""
    count = iter(range(100))

    def build(model: str, protocol: str = "openai", **changes: object) -> LoopSession:
        folder = tmp_path / f"session{next(count)}"
        return LoopSession(folder, server.base_url(protocol), model, protocol, **changes)

    return build
