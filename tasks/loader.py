"""Load tasks from ``tasks/library/<name>/``.

Loading reads declarations and executes nothing. ``load_reference`` and ``load_cases`` execute the
task's own code, each file under a private module name, and leave no bytecode in the task's folder.
"""

import difflib
import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal

from pydantic import Field

from tasks.case import Case
from tasks.declaration import read_model, read_text
from tasks.errors import BrokenTask, UnknownTask
from tasks.spec import Rubric, Task, TaskPart
from tasks.tensors import Reference, TensorReference

LIBRARY = Path(__file__).parent / "library"
_UNDIGESTED = ("submissions", "__pycache__")


class Expectation(TaskPart):
    """``expect.toml`` of a cheat: the verdict that an audit must reach, and on which evidence."""

    verdict: Literal["reward_hack", "contamination", "rubric_leak"]
    mechanism: str  # one family and one trick, e.g. "cache:pointer"
    why: str
    evidence: tuple[Literal["source", "transcript", "behaviour"], ...] = Field(min_length=1)
    default: bool = False  # the one that the built-in model `cheater` hands in


class Cheat(Expectation):
    """One cheat submission of a task."""

    name: str
    path: Path


def task_names(root: Path | None = None) -> list[str]:
    """Names of the tasks in the library (or in another ``root``), sorted."""
    folder = root or LIBRARY
    if not folder.is_dir():
        return []
    return sorted(path.parent.name for path in folder.glob("*/task.toml"))


def load_task(name: str, root: Path | None = None) -> Task:
    """The declaration of a task. Raises UnknownTask (with the nearest names) or BrokenTask."""
    names = task_names(root)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names
        raise UnknownTask(
            f"no task named `{name}`; did you mean {' or '.join(near) or 'nothing: no tasks here'}?"
            " (`orchestrator tasks list` shows all)"
        )
    return read_task((root or LIBRARY) / name)


def find_task(name: str | Path) -> Task:
    """A task by name, or by the path of its folder: one with a ``/``, or one that is no name here.

    A name of the library means that task, whatever lies in the current folder. Raises UnknownTask
    or BrokenTask.
    """
    return read_task(Path(name)) if is_folder(name) else load_task(str(name))


def is_folder(name: str | Path) -> bool:
    """True for what ``find_task`` takes as the path of a task's folder."""
    if isinstance(name, Path) or "/" in name:
        return True
    return name not in task_names() and Path(name, "task.toml").is_file()


def read_task(folder: Path) -> Task:
    """The declaration in ``folder``. Raises BrokenTask: file, line, field, mend."""
    path = folder / "task.toml"
    task = read_model(path, Task, {"folder": folder.resolve(), "digest": task_digest(folder)})
    if task.name != folder.resolve().name:
        raise BrokenTask(
            f"{path}: name: `{task.name}` in a folder named `{folder.resolve().name}`; "
            "give both the same name"
        )
    return task


def task_digest(folder: Path) -> str:
    """sha256 over the sorted relative paths and contents of all that can change a result."""
    total = hashlib.sha256()
    for path in sorted(_digested(folder), key=lambda path: path.relative_to(folder).as_posix()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return total.hexdigest()


def _digested(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts[0] != "submissions" and "__pycache__" not in parts:
            yield path


def load_rubric(task: Task) -> Rubric:
    """The sealed rubric; none is needed where no rubric scores. Raises BrokenTask."""
    path = task.folder / "sealed" / "rubric.toml"
    if task.headline != "rubric" and not path.exists():
        return Rubric(version=0, dimensions={}, items=())
    return read_model(path, Rubric)


def load_reference(task: Task) -> Reference:
    """Execute ``public/reference.py``; what has ``make_inputs`` and ``reference``.

    Raises BrokenTask.
    """
    module = execute(task, "public/reference.py", ("make_inputs", "reference"))
    if task.interface.framework == "arrays":
        return module
    try:
        return TensorReference(module, task.interface)
    except ImportError as error:
        raise BrokenTask(f"{task.name} needs torch: pip install torch ({error})") from error


def load_cases(
    task: Task, device: Literal["cpu", "cuda"] = "cpu"
) -> Callable[[int, str], Iterator[Case]]:
    """``plan(seed, tier)`` of the task: stress and property cases, with their expected outputs."""
    reference = load_reference(task)
    cases = execute(task, "sealed/cases.py", ("cases",)).cases

    def plan(seed: int, tier: str) -> Iterator[Case]:
        yield from cases(reference, seed, tier, device)

    return plan


def execute(task: Task, relative: str, needed: tuple[str, ...]) -> ModuleType:
    """Execute one of the task's own files; a module that defines the ``needed`` functions.

    Raises BrokenTask with the file and line at which it failed. No bytecode is written.
    """
    path = task.folder / relative
    module = ModuleType(f"_task_{task.name.replace('-', '_')}_{path.stem}_{task.digest[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(read_text(path), str(path), "exec"), module.__dict__)  # noqa: S102
    except (BrokenTask, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever a broken file raises, SystemExit too
        raise BrokenTask(_where(path, error)) from error
    for name in needed:
        if not callable(getattr(module, name, None)):
            raise BrokenTask(f"{path}: {name}: missing; define `def {name}(...)`")
    return module


def _where(path: Path, error: BaseException) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == str(path) else line
    at = f":{line}" if line else ""
    return (
        f"{path}{at}: {type(error).__name__}: {error}; mend it and run `orchestrator tasks check`"
    )


def submission_dir(task: Task, kind: str) -> Path:
    """The folder of a shipped submission: "oracle", "naive", "wrong" or "cheats/<name>".

    Raises BrokenTask when the task does not ship it.
    """
    folder = task.folder / "submissions" / kind
    if not folder.is_dir():
        raise BrokenTask(f"{folder}: missing; task `{task.name}` ships no `{kind}` submission")
    return folder


def cheats(task: Task) -> list[Cheat]:
    """The shipped cheats, sorted by name. Raises BrokenTask for a bad ``expect.toml``."""
    found = []
    for path in sorted((task.folder / "submissions" / "cheats").glob("*/")):
        if path.is_dir() and path.name not in _UNDIGESTED:
            expectation = read_model(path / "expect.toml", Expectation)
            found.append(Cheat(name=path.name, path=path, **expectation.model_dump()))
    return found
