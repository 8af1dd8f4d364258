"""Submissions run in the test's own process: shipped ones, and variations of their source."""

import linecache
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

from tasks.case import Arrays, Case
from tasks.impostors import accepts
from tasks.loader import execute
from tasks.spec import Task


def entries(task: Task, source: str) -> SimpleNamespace:
    """The entries of a submission that is one file, under the prompt's own names."""
    module = ModuleType(f"candidate_{task.name.replace('-', '_')}")
    sys.modules[module.__name__] = module
    name = f"<{task.name} {hash(source)}>"
    # Triton reads the source of a kernel again, by its file's name.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), module.__dict__)
    found: dict[str, object] = {}
    for entry in task.interface.entries:
        spelled = (name for name in entry.accepts if hasattr(module, name))
        found[entry.name] = getattr(module, next(spelled, ""), None)
    return SimpleNamespace(**found)


def shipped(task: Task, kind: str) -> str:
    """The source of a shipped submission."""
    return (task.folder / "submissions" / kind / task.interface.file).read_text("utf-8")


def outputs(task: Task, offered: SimpleNamespace, case: Case) -> Iterator[Arrays]:
    """The outputs of each call of a case, one by one."""
    adapter = execute(task, "public/adapter.py", ("setup", "run"))
    state = adapter.setup(offered, dict(case.params))
    for inputs in case.calls:
        yield adapter.run(offered, state, dict(inputs))


def passes(task: Task, offered: SimpleNamespace, case: Case) -> bool:
    """Whether a submission gets a case right, by the case's tolerance or else the task's."""
    try:
        with np.errstate(all="ignore"):
            return all(
                _close(task, case, got[leaf], wanted[leaf])
                for got, wanted in zip(outputs(task, offered, case), case.expected, strict=True)
                for leaf in case.relevant or wanted
            )
    except Exception:
        return False


def _close(task: Task, case: Case, got: np.ndarray, wanted: np.ndarray) -> bool:
    if type(got) is not np.ndarray or got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(got)):
        return False
    return accepts(_with_bounds_of(task, case), got[finite], wanted[finite])


def _with_bounds_of(task: Task, case: Case) -> Task:
    given: Mapping[str, float | None] = {"atol": case.atol, "rtol": case.rtol}
    changed = {name: value for name, value in given.items() if value is not None}
    bounds = {d: bound.model_copy(update=changed) for d, bound in task.tolerance.items()}
    gate = task.gate
    if case.rms_ratio is not None:
        gate = gate.model_copy(update={"rms_ratio": dict.fromkeys(bounds, case.rms_ratio)})
    return task.model_copy(update={"tolerance": bounds, "gate": gate})


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """Write text files below ``folder``; returns it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder
