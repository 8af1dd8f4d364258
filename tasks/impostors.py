"""What is no work, or too little of it, and must not pass for it.

Each impostor stands for the outputs of one draw of ``make_inputs``. One that all leaves accept
would pass a grade's nominal case.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.case import GATED_FROM, Arrays
from tasks.rawfloats import decoded, encoded
from tasks.spec import Task

LEAST_SPREAD = 4.0
"""Standard deviation of an output, at least, in units of the error that its tolerance allows."""

Fake = Callable[[int, str, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Draw:
    """One draw of inputs with its outputs, and another of another seed."""

    params: dict[str, Any]
    calls: Sequence[Arrays]
    outputs: Sequence[Arrays]
    other_params: dict[str, Any]
    other_calls: Sequence[Arrays]
    others: Sequence[Arrays]  # the outputs of the other


def accepts_nothing(task: Task, path: str, draw: Draw) -> Iterator[str]:
    """What is no work must not pass for the outputs."""
    outputs = draw.outputs
    impostors: dict[str, Fake] = {
        "zeros": lambda _, _name, wanted: np.zeros_like(wanted),
        "the mean of the output everywhere": lambda _, name, wanted: _mean(task, name, wanted),
        "the result of other inputs": lambda n, name, _: draw.others[n][name],
        "all but the last tenth": lambda _, _name, wanted: _without_tail(wanted),
    }
    for name in draw.calls[0]:
        impostors[f"the input `{name}` itself"] = _input(draw.calls, name)
    for what, fake in impostors.items():
        if passes(task, faked(outputs, fake), outputs):
            yield f"{path}: {what} would pass; tighten tolerance and gate, or change the inputs"
    yield from _constant(task, path, draw)


def _constant(task: Task, path: str, draw: Draw) -> Iterator[str]:
    """A float output that hardly varies tells right from wrong by luck."""
    told = set()
    for output in draw.outputs:
        for name, wanted in output.items():
            values = plain(task, name, wanted)
            if values.dtype.kind != "f" or values.size < GATED_FROM or name in told:
                continue
            kind = task.interface.raw_outputs.get(name, str(wanted.dtype))
            spread, allowed = float(values.std()), _allowed(task, kind, values)
            if spread == 0:
                told.add(name)
                yield f"{path}: output `{name}` is constant; draw inputs that make it vary"
            elif spread < LEAST_SPREAD * allowed:
                told.add(name)
                yield (
                    f"{path}: output `{name}` spreads by {spread:.2g}, its tolerance allows an rms "
                    f"error of {allowed:.2g}; tighten tolerance or gate, or spread the inputs"
                )


def _allowed(task: Task, kind: str, values: np.ndarray) -> float:
    """The largest rms error that tolerance and gate of this dtype let through."""
    rms = float(np.sqrt(np.mean(values**2)))
    tolerance = task.tolerance.get(kind)
    by_element = tolerance.atol + tolerance.rtol * rms if tolerance else 0.0
    return min(by_element, task.gate.rms_ratio.get(kind, np.inf) * rms)


def faked(outputs: Sequence[Arrays], fake: Fake) -> list[dict[str, np.ndarray]]:
    """Every leaf of every call replaced."""
    return [
        {name: fake(n, name, wanted) for name, wanted in output.items()}
        for n, output in enumerate(outputs)
    ]


def passes(task: Task, got: Sequence[Arrays], wanted: Sequence[Arrays]) -> bool:
    """Whether these outputs would pass for those: all leaves of all calls accepted."""
    return all(
        accepts(task, given[name], leaf, task.interface.raw_outputs.get(name))
        for given, output in zip(got, wanted, strict=True)
        for name, leaf in output.items()
    )


def plain(task: Task, name: str, values: np.ndarray) -> np.ndarray:
    """An output as numbers, floats as float64."""
    raw = task.interface.raw_outputs.get(name)
    if raw is not None and values.dtype.kind == "u":
        values = decoded(raw, values)
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _mean(task: Task, name: str, wanted: np.ndarray) -> np.ndarray:
    """As far as the output's own dtype can say it."""
    raw = task.interface.raw_outputs.get(name)
    mean = np.full(wanted.shape, plain(task, name, wanted).mean() if wanted.size else 0.0)
    return encoded(raw, mean) if raw and wanted.dtype.kind == "u" else mean.astype(wanted.dtype)


def _without_tail(wanted: np.ndarray) -> np.ndarray:
    part = wanted.copy(order="C")
    part.reshape(-1)[-max(1, part.size // 10) :] = 0
    return part


def _input(calls: Sequence[Arrays], name: str) -> Fake:
    """The input where it looks like the output, else zeros."""

    def fake(n: int, _leaf: str, wanted: np.ndarray) -> np.ndarray:
        array = calls[n].get(name)
        fits = array is not None and (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        return array if fits and array is not None else np.zeros_like(wanted)

    return fake


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
