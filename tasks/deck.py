"""Decks: named lists of tasks, each locked by its digest once the deck is released."""

import difflib
import re
from pathlib import Path

from tasks.declaration import read_model, read_text
from tasks.errors import BrokenTask, UnknownDeck
from tasks.loader import load_task
from tasks.spec import Deck, Task

DECKS = Path(__file__).parent / "decks"
_CELL = re.compile(r"^\[\[cells\]\][^\[]*", re.MULTILINE)
_DIGEST_LINE = re.compile(r"^digest\s*=.*\n?", re.MULTILINE)


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
    """Write the present digests of the deck's tasks into its file; the names that changed."""
    deck = load_deck(name, root)
    path = (root or DECKS) / f"{name}.toml"
    fresh = {cell.task: load_task(cell.task, library).digest for cell in deck.cells}
    remaining = iter(deck.cells)

    def locked(match: re.Match[str]) -> str:
        body = _DIGEST_LINE.sub("", match.group(0)).rstrip("\n")
        tail = match.group(0)[len(match.group(0).rstrip("\n")) :]
        return f'{body}\ndigest = "{fresh[next(remaining).task]}"{tail}'

    path.write_text(_CELL.sub(locked, read_text(path)), "utf-8")
    return [cell.task for cell in deck.cells if cell.digest != fresh[cell.task]]
