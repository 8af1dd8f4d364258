"""Decks: named lists of tasks, each locked by its digest once the deck is released."""

import difflib
import re
from pathlib import Path

from tasks.declaration import read_model, read_text
from tasks.errors import BrokenTask, UnknownDeck
from tasks.loader import load_task
from tasks.spec import Deck, DeckCell, Task

DECKS = Path(__file__).parent / "decks"
_CELL = re.compile(r"^\[\[cells\]\][^\[]*", re.MULTILINE)
_LOCK_LINES = re.compile(r"^(?:digest|version)\s*=.*\n?", re.MULTILINE)


def deck_names(root: Path | None = None) -> list[str]:
    """Names of the decks, sorted."""
    return sorted(path.stem for path in (root or DECKS).glob("*.toml"))


def load_deck(name: str, root: Path | None = None) -> Deck:
    """The declaration of a deck. Raises UnknownDeck (with the nearest names) or BrokenTask."""
    names = deck_names(root)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
        raise UnknownDeck(f"no deck named `{name}`; did you mean {' or '.join(near)}?")
    return read_model((root or DECKS) / f"{name}.toml", Deck)


def deck_tasks(deck: Deck, library: Path | None = None) -> list[Task]:
    """The tasks of a deck in its order.

    Raises UnknownTask, or BrokenTask when a task or its lock is broken: results of a changed task
    would not be comparable with the deck's.
    """
    return [_locked(deck, cell.task, cell.digest, library) for cell in deck.cells]


def _locked(deck: Deck, name: str, digest: str | None, library: Path | None) -> Task:
    task = load_task(name, library)
    if digest is not None and digest != task.digest:
        raise BrokenTask(
            f"task `{name}` is not the one that deck `{deck.name}` locks: its files give "
            f"{task.digest[:12]}, the deck says {digest[:12]}. Restore the task's files; if the "
            f"change is meant, make a new version (`version` in task.toml, now {task.version}) and "
            f"run `orchestrator tasks lock {deck.name}`"
        )
    return task


def lock_deck(name: str, root: Path | None = None, library: Path | None = None) -> list[str]:
    """Write the present versions and digests of the deck's tasks into its file.

    Returns the names of those that changed. Raises BrokenTask, and writes nothing, where a locked
    task has other files and no higher version: what was published only changes as a new version.
    """
    deck = load_deck(name, root)
    path = (root or DECKS) / f"{name}.toml"
    tasks = [load_task(cell.task, library) for cell in deck.cells]
    silent = [_silent(deck, *pair) for pair in zip(deck.cells, tasks, strict=True)]
    if any(silent):
        raise BrokenTask("\n".join(filter(None, silent)))
    remaining = iter(tasks)

    def locked(match: re.Match[str]) -> str:
        task = next(remaining)
        body = _LOCK_LINES.sub("", match.group(0)).rstrip("\n")
        tail = match.group(0)[len(match.group(0).rstrip("\n")) :]
        return f'{body}\nversion = {task.version}\ndigest = "{task.digest}"{tail}'

    path.write_text(_CELL.sub(locked, read_text(path)), "utf-8")
    return [
        task.name
        for cell, task in zip(deck.cells, tasks, strict=True)
        if cell.digest != task.digest
    ]


def _silent(deck: Deck, cell: DeckCell, task: Task) -> str:
    """What to do about a change without a new version; empty where there is none."""
    if cell.digest in (None, task.digest) or cell.version is None or task.version > cell.version:
        return ""
    return (
        f"task `{task.name}` changed (its files give {task.digest[:12]}, deck `{deck.name}` locks "
        f"{cell.digest[:12]}) and is still version {task.version}. Grades of the locked version "
        f"would not be comparable: set `version = {cell.version + 1}` in "
        f"{task.folder / 'task.toml'} and lock again, or restore the files"
    )
