"""What `grade` was pointed at, and what a folder of foreign submissions holds, said beforehand."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from orchestrator.errors import UserError
from orchestrator.foreign import Layout, is_one_submission, map_folder
from sandboxes.names import printable
from tasks.loader import is_folder
from transcripts.errors import NotAnArchive
from transcripts.folder import RECORD
from transcripts.store import MARKER, Archive

_MOST_LISTED = 40
"""Lines of a mapping that are printed; the rest is counted."""


def kind_of(path: Path, task: str) -> Literal["archive", "one", "several", "id"]:
    """What a target is; what is no path may be an attempt's id.

    A folder is one submission where ``task`` is a task's folder: layouts name the library's tasks.

    Raises UserError for a path that is missing, cannot be looked at, or is an attempt's folder.
    """
    try:
        if (path / MARKER).is_file():
            return "archive"
        if (path / RECORD).is_file():
            raise UserError(f"{path} is an attempt's folder: say its id, `{path.resolve().name}`")
        if path.is_dir():
            whole = is_folder(task) or is_one_submission(path, task)
            return "one" if whole else "several"
        if path.is_file():
            return "one"
        known = path.exists() or path.is_symlink()
    except OSError as error:
        raise UserError(f"{printable(str(path))}: {error.strerror}") from error
    if known or path.suffix or len(path.parts) > 1:
        what = "is no file and no folder" if known else "does not exist"
        raise UserError(f"{printable(str(path))} {what}")
    return "id"


def mapped(root: Path, task: str, say: Callable[[str], None]) -> Layout:
    """The submissions below a folder, said before anything starts.

    Raises UserError when there is none.
    """
    layout = map_folder(root, task)
    for one in layout.found[:_MOST_LISTED]:
        by = f" by {one.model}" if one.model else ""
        say(f"{one.shown} -> {one.task}{by} ({one.why})")
    lines = [f"{one.shown}: {one.why}" for one in layout.unnamed]
    if not layout.found:
        what = "no Python file is in it" if not lines else "\n  ".join(lines[:_MOST_LISTED])
        raise UserError(f"no submission found in {printable(str(root))}:\n  {what}")
    for line in lines[:_MOST_LISTED]:
        say(f"not named: {line}")
    more = max(0, len(layout.found) - _MOST_LISTED) + max(0, len(lines) - _MOST_LISTED)
    if more:
        say(f"and {more} more")
    return layout


def open_archive(path: Path, wanted: str = "") -> Archive:
    """The archive, with an error that fits what was asked for."""
    try:
        return Archive.open(path)
    except NotAnArchive as error:
        if not wanted:
            raise
        raise UserError(f"`{wanted}` is no file or folder here, and no attempt: {error}") from error
