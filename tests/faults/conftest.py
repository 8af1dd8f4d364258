"""Sessions with a fault in them: played in this process, or by the command line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_servers import Canned, CannedServer
from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from transcripts.store import Archive, AttemptFolder

Playing = Callable[..., AttemptFolder]


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    """Run one session against answers in turn and return its attempt."""
    server = CannedServer()

    def play(*answers: Canned, sandbox: str = "process") -> AttemptFolder:
        server.answers = list(answers)
        request = SweepRequest(
            archive=tmp_path / "archive",
            models=[f"{server.base_url()}/v1#m"],
            deck="rounds",
            tasks=["kv-cache"],
            sandbox=sandbox,
        )
        with prepared(request, Progress()) as sweep:
            assert not sweep.run_sessions().defects
        (folder,) = Archive.open(tmp_path / "archive").attempts()
        return folder

    yield play
    server.close()
