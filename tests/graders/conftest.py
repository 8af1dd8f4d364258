"""A task small enough that a whole grade takes a second, and ways to grade texts on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from tasks.loader import read_task
from tasks.spec import Task
from transcripts.records import Grade

LIBRARY = Path(__file__).parent / "library"

Grading = Callable[..., Grade]


@pytest.fixture(scope="session")
def task() -> Task:
    return read_task(LIBRARY / "scaled-row-sum")


@pytest.fixture(scope="session")
def library() -> Path:
    """Small tasks, one for each thing that a task can be."""
    return LIBRARY


@pytest.fixture
def submit(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Write a submission's files; a fresh folder each time."""

    def write(files: dict[str, str]) -> Path:
        folder = tmp_path / f"submission-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    return write


@pytest.fixture
def grade(task: Task, submit: Callable[[dict[str, str]], Path]) -> Grading:
    """Grade the text of ``row_sum.py``, a shipped submission by name, or a dict of files."""

    def run(what: str | dict[str, str], **options: object) -> Grade:
        if isinstance(what, str) and "\n" not in what:
            folder = task.folder / "submissions" / what
        else:
            folder = submit({"row_sum.py": what} if isinstance(what, str) else what)
        given = {"tier": "quick", "correctness_only": True, **options}
        return RefereeGrader().grade(GradeRequest(task, folder, **given))  # type: ignore[arg-type]

    return run
