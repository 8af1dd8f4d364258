"""Folders of submissions that other tools left: which file or folder is for which task.

Layouts: ``DIR/<task>/``, ``DIR/<model>/<task>/`` (any depth), ``DIR/**/<task>*.py``; ``-`` and
``_`` are the same, and so are capitals. ``DIR/manifest.toml`` names what the layout does not::

    "first-try/answer.py" = "kv-cache"
    "other" = { task = "layernorm-backward", model = "some-model" }

Nothing is executed, links are not followed, and nothing is guessed: what has no name is listed
with what would name it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from graders.entry import find_entry
from graders.offers import Offers
from orchestrator.errors import UserError
from sandboxes.names import is_derived, printable
from tasks.loader import load_task, task_names
from tasks.spec import Task

MANIFEST = "manifest.toml"
MAX_ENTRIES = 50_000
"""Files and folders looked at; more is a home folder given by mistake."""


@dataclass(frozen=True)
class Foreign:
    """One submission: a folder or a file, for a task. ``model`` is empty where nothing says it."""

    path: Path
    shown: str  # relative to the folder, as a terminal may have it
    task: str
    model: str
    why: str  # what named it


@dataclass(frozen=True)
class Unnamed:
    """What may be a submission and is for no task, with what would name it."""

    path: Path
    shown: str
    why: str


@dataclass
class Layout:
    """What a folder holds, sorted by path."""

    found: list[Foreign] = field(default_factory=list)
    unnamed: list[Unnamed] = field(default_factory=list)


def is_one_submission(folder: Path, task: str) -> bool:
    """True for a folder that is itself the submission, when its task was said.

    That is: Python lies directly in it, or it has neither a manifest nor two parts that each offer
    the task's interface.
    """
    if (folder / MANIFEST).is_file() or not task:
        return False
    if any(path.suffix == ".py" and path.is_file() for path in folder.iterdir()):
        return True
    found = map_folder(folder, task).found
    return len(found) < 2 and all(one.task == task for one in found)


def map_folder(root: Path, task: str = "") -> Layout:
    """The submissions below ``root``. ``task`` is that of what the layout does not name.

    Raises UserError: unreadable, too large, a mistake in the manifest; UnknownTask.
    """
    tasks = {name: load_task(name) for name in task_names()}
    if task:
        load_task(task)  # its error offers the nearest names
    named = _manifest(root)
    walk = _Walk(root, list(tasks), {entry.path for entry in named})
    mapping = walk.whole()
    mapping.found += named
    unnamed, mapping.unnamed = mapping.unnamed, []
    for one in unnamed:
        if task and offers(tasks[task], one.path):
            mapping.found.append(_named(root, one, task))
        else:
            mapping.unnamed.append(_hinted(one, tasks, task))
    mapping.found.sort(key=lambda one: one.shown)
    mapping.unnamed.sort(key=lambda one: one.shown)
    return mapping


def task_of_name(name: str, names: Sequence[str], *, whole: bool) -> list[str]:
    """The tasks that a file's stem or a folder's name is for: the longest that fit.

    A stem may go on after the task's name (``kv_cache_v2``), but not with a letter. Several are
    tasks whose names differ by ``-``, ``_`` and capitals only.
    """
    plain = _plain(name)
    fit = [
        task
        for task in names
        if plain == _plain(task)
        or (not whole and re.match(re.escape(_plain(task)) + r"[^a-z]", plain))
    ]
    longest = max(map(len, fit), default=0)
    return [task for task in fit if len(task) == longest]


def offers(task: Task, path: Path) -> bool:
    """True when a folder or a file offers the task's required entries."""
    if path.is_dir():
        return find_entry(task, path) is not None
    found = Offers()
    required = [entry for entry in task.interface.entries if not entry.optional]
    return all(
        any(found.has(path, name) for name in (*entry.accepts, entry.name)) for entry in required
    )


def _plain(name: str) -> str:
    return re.sub(r"[_\s]", "-", name.lower())


def _named(root: Path, one: Unnamed, task: str) -> Foreign:
    parts = one.path.relative_to(root).parts
    parts = (*parts[:-1], one.path.stem) if one.path.is_file() and len(parts) == 1 else parts
    parts = parts[:-1] if one.path.is_file() and len(parts) > 1 else parts
    return Foreign(one.path, one.shown, task, _model(parts), "--task")


def _hinted(one: Unnamed, tasks: Mapping[str, Task], task: str) -> Unnamed:
    """With what would name it: the tasks whose interface it offers."""
    if task:
        return replace(one, why=f"{one.why}, and it does not offer what `{task}` asks for")
    fit = [name for name, known in tasks.items() if offers(known, one.path)]
    if fit:
        ways = f'--task {fit[0]}, or a line in {MANIFEST}: "{one.shown}" = "{fit[0]}"'
        return replace(one, why=f"{one.why}; it offers what `{fit[0]}` asks for: {ways}")
    return replace(
        one, why=f'{one.why}; --task NAME, or a line in {MANIFEST}: "{one.shown}" = "NAME"'
    )


def _model(parts: Sequence[str]) -> str:
    return printable("/".join(parts))


# --- the manifest --------------------------------------------------------------------------------


def _manifest(root: Path) -> list[Foreign]:
    path = root / MANIFEST
    if not path.is_file():
        return []
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    return [_entry(root, path, key, value) for key, value in document.items()]


def _entry(root: Path, manifest: Path, key: str, value: object) -> Foreign:
    given = {"task": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not {"task"} <= given.keys() <= {"task", "model"}:
        raise UserError(f'{manifest}: "{key}": say "NAME", or {{ task = "NAME", model = "..." }}')
    relative = PurePosixPath(key)
    target = root / relative
    inside = not relative.is_absolute() and ".." not in relative.parts and relative.parts
    if not inside or not target.resolve().is_relative_to(root.resolve()):
        raise UserError(f'{manifest}: "{key}" leads outside of the folder')
    if not target.exists():
        raise UserError(f'{manifest}: "{key}": there is no such file or folder')
    task = load_task(str(given["task"])).name
    parts = relative.parts if target.is_dir() else relative.parts[:-1]
    model = str(given.get("model", "")) or _model(parts)
    return Foreign(target, printable(key), task, model, MANIFEST)


# --- the layout ----------------------------------------------------------------------------------


class _Walk:
    """One pass over a folder. Links are listed, never followed."""

    def __init__(self, root: Path, tasks: Sequence[str], named: set[Path]) -> None:
        self._root, self._tasks, self._named = root, tasks, named
        self._left = MAX_ENTRIES

    def whole(self) -> Layout:
        """All below the root; the root itself counts when it is called like a task."""
        own = task_of_name(self._root.resolve().name, self._tasks, whole=True)
        mapping = self._folder(self._root)
        if len(own) == 1 and not mapping.found and self._has_python(self._root):
            return Layout([Foreign(self._root, ".", own[0], "", "the folder's name")])
        return mapping

    def _folder(self, folder: Path) -> Layout:
        mapping, loose = Layout(), []
        for path in self._entries(folder, mapping):
            if path in self._named:
                continue
            if path.is_symlink():
                if path.suffix == ".py":
                    mapping.unnamed.append(self._unnamed(path, "a link, which is not followed"))
            elif path.is_dir():
                below = self._subfolder(path)
                mapping.found += below.found
                mapping.unnamed += below.unnamed
            elif path.suffix == ".py" and path.is_file() and not self._file(path, mapping):
                loose.append(path)
        self._loose(folder, loose, mapping)
        return mapping

    def _subfolder(self, folder: Path) -> Layout:
        names = task_of_name(folder.name, self._tasks, whole=True)
        if not names:
            return self._folder(folder)
        if len(names) > 1:
            return Layout([], [self._unnamed(folder, f"the name fits {' and '.join(names)}")])
        if not self._has_python(folder):
            return Layout([], [self._unnamed(folder, "no Python file is in it")])
        parts = folder.relative_to(self._root).parts[:-1]
        found = Foreign(folder, self._shown(folder), names[0], _model(parts), "the folder's name")
        return Layout([found])

    def _file(self, path: Path, mapping: Layout) -> bool:
        names = task_of_name(path.stem, self._tasks, whole=False)
        if len(names) > 1:
            mapping.unnamed.append(self._unnamed(path, f"the name fits {' and '.join(names)}"))
        if len(names) == 1:
            parts = path.relative_to(self._root).parts[:-1]
            rest = path.stem[len(names[0]) :].strip("-_. ")
            model = _model(parts or ((rest,) if rest else ()))
            shown = self._shown(path)
            mapping.found.append(Foreign(path, shown, names[0], model, "the file's name"))
        return bool(names)

    def _loose(self, folder: Path, files: list[Path], mapping: Layout) -> None:
        """Python that has no task's name: its folder, unless others in that have one."""
        files = [path for path in files if not _is_beside(path.name)]
        if not files:
            return
        why = "neither it nor its folder is called like a task"
        if mapping.found or folder == self._root:
            mapping.unnamed += [self._unnamed(path, why) for path in files]
        else:
            mapping.unnamed = [self._unnamed(folder, why)]

    def _entries(self, folder: Path, mapping: Layout) -> Iterator[Path]:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            mapping.unnamed.append(self._unnamed(folder, f"it cannot be read: {error.strerror}"))
            return
        self._left -= len(names)
        if self._left < 0:
            raise UserError(
                f"{printable(str(self._root))} holds more than {MAX_ENTRIES} files and folders; "
                "name the folder with the submissions"
            )
        yield from (folder / n for n in names if not n.startswith(".") and not is_derived(n))

    def _has_python(self, folder: Path) -> bool:
        return any(
            path.suffix == ".py" or (path.is_dir() and self._has_python(path))
            for path in self._entries(folder, Layout())
            if not path.is_symlink()
        )

    def _unnamed(self, path: Path, why: str) -> Unnamed:
        return Unnamed(path, self._shown(path), why)

    def _shown(self, path: Path) -> str:
        return printable(path.relative_to(self._root).as_posix())


def _is_beside(name: str) -> bool:
    """Files that come with submissions and are none."""
    return name.startswith("test_") or name in ("__init__.py", "conftest.py", "setup.py")
