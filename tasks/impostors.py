"""What is no work, and must not pass for it: the check of a task's tolerance and gate."""

from collections.abc import Callable, Iterator

import numpy as np

from tasks.case import GATED_FROM, Arrays
from tasks.rawfloats import decoded
from tasks.spec import Task


def accepts_nothing(
    task: Task, path: str, calls: list[Arrays], outputs: list[Arrays], others: list[Arrays]
) -> Iterator[str]:
    """What is no work must not pass for the outputs."""
    impostors: dict[str, Callable[[int, str, np.ndarray], np.ndarray]] = {
        "zeros": lambda _, _name, wanted: np.zeros_like(wanted),
        "an input of the same shape": lambda n, _, wanted: _identity(calls[n], wanted),
        "the result of other inputs": lambda n, name, _: others[n][name],
        "all but the last tenth": lambda _, _name, wanted: _without_tail(wanted),
    }
    for what, fake in impostors.items():
        triples = [
            (fake(n, name, wanted), wanted, task.interface.raw_outputs.get(name))
            for n, output in enumerate(outputs)
            for name, wanted in output.items()
        ]
        if all(accepts(task, got, wanted, raw) for got, wanted, raw in triples):
            yield f"{path}: {what} would pass; tighten tolerance and gate, or change the inputs"


def _without_tail(wanted: np.ndarray) -> np.ndarray:
    part = wanted.copy(order="C")
    part.reshape(-1)[-max(1, part.size // 10) :] = 0
    return part


def _identity(call: Arrays, wanted: np.ndarray) -> np.ndarray:
    for array in call.values():
        if array.shape == wanted.shape and array.dtype.kind == wanted.dtype.kind:
            return array
    return np.zeros_like(wanted)


def accepts(task: Task, got: np.ndarray, wanted: np.ndarray, raw: str | None = None) -> bool:
    """Whether ``got`` is within the task's public tolerance and gate of ``wanted``."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    kind = raw or str(wanted.dtype)
    if raw is not None and wanted.dtype.kind == "u":
        got, wanted = decoded(raw, got), decoded(raw, wanted)
    tolerance = task.tolerance.get(kind)
    if tolerance is None or wanted.dtype.kind not in "fV":
        return bool(np.array_equal(got, wanted))
    exact, error = wanted.astype(np.float64), np.subtract(got, wanted, dtype=np.float64)
    if not np.all(np.abs(error) <= tolerance.atol + tolerance.rtol * np.abs(exact)):
        return False
    ratio = task.gate.rms_ratio.get(kind, np.inf)
    if wanted.size < GATED_FROM:
        return True
    return bool(np.sqrt(np.mean(error**2)) <= ratio * np.sqrt(np.mean(exact**2)))
