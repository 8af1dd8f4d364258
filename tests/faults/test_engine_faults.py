"""A Docker Engine that loses a session's container, or dies itself."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from fault_table import end_of
from live_sweep import (
    arguments,
    only_attempt,
    run_sessions_to_their_end,
    started,
    steps_done,
    wait_for_results,
)
from sandboxes.docker_options import SESSION_LABEL
from transcripts.events import ToolResult
from transcripts.store import AttemptFolder

pytestmark = [pytest.mark.docker, pytest.mark.alone]

STEPS = 24


class Engine:
    """A Docker Engine of this test alone, so that it may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.host = f"unix://{folder}/engine.sock"

    def start(self) -> None:
        words = [
            *("dockerd", "--data-root", f"{self._folder}/data", "--exec-root"),
            *(f"{self._folder}/exec", "-H", self.host, "--pidfile", f"{self._folder}/pid"),
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none"),
        ]
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                self.client().close()
                return
            except DockerException:
                time.sleep(0.1)
        pytest.fail(f"the engine did not start: {(self._folder / 'log').read_text()[-2000:]}")

    def client(self) -> docker.DockerClient:
        client = docker.DockerClient(base_url=self.host, timeout=20)
        client.ping()
        return client

    def kill(self) -> None:
        """kill -9 of dockerd and its containerd: the containers and their shims are still there."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for pid in _below(self._folder):
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if program.rpartition(b"/")[2] == b"containerd":
                os.kill(pid, signal.SIGKILL)
        # Where nobody reaps orphans, a dead containerd still has a pid, and is waited for.
        for name in ("pid", "exec/containerd/containerd.pid"):
            Path(self._folder, name).unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)
        for pid in _below(self._folder):
            os.kill(pid, signal.SIGKILL)


def _below(folder: Path) -> list[int]:
    """What a killed daemon left: processes that name its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture
def engine() -> Iterator[Engine]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("needs dockerd and root")
    folder = Path(f"/run/faults-{os.getpid()}")  # a socket's path has at most 107 bytes
    folder.mkdir()
    one = Engine(folder)
    try:
        one.start()
        yield one
    finally:
        one.stop()
        subprocess.run(
            ["sh", "-c", f"umount -l {folder}/*/*/* {folder}/*/* 2>/dev/null"], check=False
        )
        shutil.rmtree(folder, ignore_errors=True)


def assert_gone_on_with(attempt: AttemptFolder, before: list[bytes]) -> None:
    """Nothing was lost, nothing was done twice, and the workspace was the same."""
    assert list(attempt.lines())[: len(before)] == before
    results = [event for event in attempt.events() if isinstance(event, ToolResult)]
    assert [result.step for result in results] == list(range(STEPS))
    told = {result.step for result in results if result.status == "interrupted"}
    done = steps_done(attempt)
    assert len(set(done)) == len(done)
    assert set(range(STEPS)) - set(done) <= told


def words() -> list[str]:
    model = f"longhaul?steps={STEPS}&tool_s=0.15"
    return arguments(model, "docker", "--max-steps", str(STEPS))


def test_a_container_that_is_removed_is_gone_on_with(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, words(), DOCKER_HOST=engine.host) as sweep:
        wait_for_results(tmp_path, 3)
        client = engine.client()
        (container,) = client.containers.list(filters={"label": SESSION_LABEL})
        container.remove(force=True)
        client.close()
        _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 5, said
    attempt = only_attempt(tmp_path)
    assert attempt.record.outcome is not None
    outcome = attempt.record.outcome
    assert (outcome.end, outcome.reason) == end_of("container removed")
    before = list(attempt.lines())
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    assert_gone_on_with(run_sessions_to_their_end(tmp_path, words()), before)


def test_an_engine_that_is_killed_and_restarted_is_gone_on_with(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, words(), DOCKER_HOST=engine.host) as sweep:
        wait_for_results(tmp_path, 3)
        engine.kill()
        engine.start()  # it finds the containers of its predecessor, and ends them
        _, said = sweep.communicate(timeout=120)
    assert sweep.returncode in (0, 5), said
    attempt = only_attempt(tmp_path)
    before = list(attempt.lines())
    if sweep.returncode == 5:
        assert attempt.record.outcome is not None
        outcome = attempt.record.outcome
        assert (outcome.end, outcome.reason) == end_of("engine killed and restarted")
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    assert_gone_on_with(run_sessions_to_their_end(tmp_path, words()), before)
