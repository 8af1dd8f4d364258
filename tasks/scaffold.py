"""A new task's folder: a copy of a small, complete task, to be changed piece by piece.

``tasks/templates/<language>/`` are tasks like any other: `tasks check` says ok of each, its oracle
and its naive submission pass, the wrong one fails, and the cheat is for an audit.
"""

import difflib
import re
import shutil
from pathlib import Path

from tasks.errors import CannotScaffold
from tasks.loader import LIBRARY, task_names

TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def languages() -> list[str]:
    """What templates there are, sorted."""
    return task_names(TEMPLATES)


def scaffold(name: str, language: str, into: Path) -> Path:
    """Write a new task's folder ``into/name``; the folder.

    Raises CannotScaffold for a name that no task can have or one that is taken, for a language
    without a template, and where the folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise CannotScaffold(
            f"`{name}` is no name for a task: small letters and digits, words joined by `-`"
        )
    if name in task_names():
        raise CannotScaffold(f"there is a task `{name}` in {LIBRARY}; choose another name")
    if language not in languages():
        near = difflib.get_close_matches(language, languages(), n=1, cutoff=0.4) or languages()
        raise CannotScaffold(f"no template for `{language}`; there is {' and '.join(near)}")
    folder = into / name
    if folder.exists():
        raise CannotScaffold(f"{folder} is there already; remove it, or choose another name")
    try:
        shutil.copytree(TEMPLATES / language, folder, ignore=shutil.ignore_patterns("__pycache__"))
        _rename(folder / "task.toml", language, name)
    except OSError as error:
        raise CannotScaffold(f"{folder} cannot be written: {error.strerror}") from error
    return folder


def _rename(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    path.write_text(text.replace(f'name = "{old}"', f'name = "{new}"', 1), "utf-8")
