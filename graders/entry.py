"""Find what a submission offers, from its syntax tree alone: nothing of it is executed here.

An entry is a top-level name, or a dotted one (``Cache.append``: a method of a top-level class). It
may be defined, assigned, or imported from another file of the submission.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from graders.offers import Offers
from tasks.spec import EntryPoint, Task

MAX_ASKED = 200
"""Files that are asked whether they offer the interface; the prompt names the first."""


@dataclass(frozen=True)
class Entry:
    """Where the adapter finds its callables. ``file`` is relative to the submission."""

    file: str
    names: Mapping[str, str]  # entry name -> the name as written in the file
    absent: tuple[str, ...] = ()  # optional entries that the file does not offer


def find_entry(task: Task, submission: Path) -> Entry | None:
    """The first file that offers every required entry; the prompt's own file is asked first."""
    offers = Offers()
    for path in islice(_candidates(task, submission), MAX_ASKED):
        found = {
            entry.name: spelled
            for entry in task.interface.entries
            if (spelled := _spelled(entry, offers, path)) is not None
        }
        missing = [e for e in task.interface.entries if e.name not in found]
        if all(entry.optional for entry in missing):
            relative = path.relative_to(submission).as_posix()
            return Entry(relative, found, tuple(entry.name for entry in missing))
    return None


def _candidates(task: Task, submission: Path) -> Iterator[Path]:
    files = [path for path in sorted(submission.rglob("*.py")) if not path.is_symlink()]
    files.sort(key=lambda path: (path.name != task.interface.file, len(path.parts)))
    for path in files:
        if not path.name.startswith("test_") and "__pycache__" not in path.parts and path.is_file():
            yield path


def _spelled(entry: EntryPoint, offers: Offers, path: Path) -> str | None:
    spellings = (*entry.accepts, entry.name)
    return next((name for name in spellings if offers.has(path, name)), None)
