"""A machine with neither bubblewrap nor a Docker Engine: everything runs, loudly, and is marked."""

import json
from pathlib import Path

import pytest

from command_line import Run
from transcripts.store import Archive


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which there is no bubblewrap and no engine."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(folder).glob("*"):
            link = programs / program.name
            if program.name != "bwrap" and not link.is_symlink():
                link.symlink_to(program)
    return {"PATH": str(programs), "DOCKER_HOST": f"unix://{tmp_path}/no-engine.sock"}


@pytest.mark.alone
def test_a_sweep_runs_as_plain_processes_and_marks_its_cells(
    run: Run, bare: dict[str, str], tmp_path: Path
) -> None:
    sweep = ("sweep", "--models", "oracle", "--tasks", "layernorm-backward", "--tier", "quick")
    done = run(*sweep, **bare)
    assert done.code == 0, done.err
    assert "WARNING: NO SANDBOX" in done.err
    assert "WITHOUT ISOLATION" in done.err
    assert "`process`" in done.out  # the legend of the mark at the cell
    (folder,) = Archive.open(tmp_path / "archive").attempts()
    assert folder.record.unsandboxed
    (grade,) = folder.grades()
    assert (grade.result, grade.isolation) == ("pass", "process")


def test_an_isolating_sandbox_that_was_asked_for_is_not_replaced(
    run: Run, bare: dict[str, str], tmp_path: Path
) -> None:
    done = run("sweep", "--models", "oracle", "--sandbox", "bubblewrap", **bare)
    assert done.code == 3
    assert "bubblewrap" in done.err
    assert not (tmp_path / "archive").exists()


def test_doctor_says_what_is_missing_and_how_to_get_it(run: Run, bare: dict[str, str]) -> None:
    done = run("doctor", "--json", **bare)
    assert done.code == 3
    found = {one["topic"]: one for one in json.loads(done.out)}
    assert not found["isolation"]["ok"]
    assert "bubblewrap" in found["isolation"]["fix"]
