"""The tasks that the built-in models can play, and the files that they hand in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.spec import Task


@dataclass(frozen=True)
class TaskScript:
    """A task of the library, or of another folder of tasks."""

    name: str
    prompt: str = field(repr=False)
    root: Path | None = None

    def files(self, kind: str) -> Mapping[str, str]:
        """The files of a shipped submission; "oracle", "naive", "wrong" or "cheater"."""
        return _files(self.name, self.root, kind)


@cache
def _files(name: str, root: Path | None, kind: str) -> Mapping[str, str]:
    from tasks.loader import load_task, submission_dir  # noqa: PLC0415 - start-up time

    task = load_task(name, root)
    folder = submission_dir(task, _default_cheat(task) if kind == "cheater" else kind)
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "expect.toml" and "__pycache__" not in path.parts
    }


def _default_cheat(task: "Task") -> str:
    from tasks.errors import BrokenTask  # noqa: PLC0415
    from tasks.loader import cheats  # noqa: PLC0415

    for cheat in cheats(task):
        if cheat.default:
            return f"cheats/{cheat.name}"
    raise BrokenTask(
        f"{task.folder}/submissions/cheats: no cheat is the default; "
        "set `default = true` in the expect.toml of the one that `cheater` shall hand in"
    )


class Library:
    """All tasks that the stories can play."""

    def __init__(self, root: Path | None = None) -> None:
        self.scripts = tuple(_scripts(root))

    def recognise(self, message: str) -> TaskScript | None:
        """The task whose prompt the message contains; white space may differ."""
        words = _plain(message)
        found = [script for script in self.scripts if script.prompt in words]
        return max(found, key=lambda script: len(script.prompt), default=None)


def _scripts(root: Path | None) -> Iterator[TaskScript]:
    from tasks.errors import BrokenTask  # noqa: PLC0415
    from tasks.loader import load_task, task_names  # noqa: PLC0415

    for name in task_names(root):
        try:
            prompt = _plain(load_task(name, root).prompt)
        except (BrokenTask, OSError):
            continue  # whoever asks for this task is told by its loader; the others can be played
        if prompt:
            yield TaskScript(name, prompt, root)


def _plain(text: str) -> str:
    return " ".join(text.split())
