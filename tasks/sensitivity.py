"""Whether every declared input matters: other values of it must move the output.

An input that the output does not depend on, within its tolerance, is one that a submission may
leave unread.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tasks.case import Arrays
from tasks.impostors import Draw, passes
from tasks.spec import Task
from tasks.tensors import Reference, raw_of


class Moved:
    """What the inputs of a task's smoke shapes do: one that matters in one of them matters."""

    def __init__(self) -> None:
        self._moves: dict[str, bool] = {}  # what was tried -> whether it ever moved the output

    def look(self, task: Task, reference: Reference, draw: Draw) -> None:
        """Try other values of each input, and of the weights as a whole."""
        for name in draw.calls[0]:
            if self._moves.get(f"input `{name}`"):
                continue
            for calls in _altered(task, draw, name):
                self._try(task, reference, draw, f"input `{name}`", draw.params, calls)
        weights, other = draw.params.get("weights"), draw.other_params.get("weights")
        if weights and not _equal(weights, other):
            params = {**draw.params, "weights": other}
            self._try(task, reference, draw, "weights", params, draw.calls)

    def ignored(self, path: str) -> Iterator[str]:
        """What never moved the output."""
        for what in (name for name, moves in self._moves.items() if not moves):
            yield (
                f"{path}: other values of the {what} move the output by less than its tolerance; "
                "tighten it, use the values, or leave them out"
            )

    def _try(
        self,
        task: Task,
        reference: Reference,
        draw: Draw,
        what: str,
        params: dict[str, Any],
        calls: Sequence[Arrays],
    ) -> None:
        if self._moves.get(what):
            return
        got = _outputs(reference, params, calls)
        if got is not None:
            self._moves[what] = not passes(task, got, draw.outputs)


def _altered(task: Task, draw: Draw, name: str) -> Iterator[list[Arrays]]:
    """The calls with another draw's values of one input, or with its own in another order.

    Nothing where that changes nothing. What is no float may be places or lengths: only dealt ones.
    """
    first = draw.calls[0][name]
    ways = [[call.get(name) for call in draw.other_calls]]
    if first.dtype.kind == "f" or raw_of(task.interface.raw_inputs, name):
        ways.append([_turned(call.get(name)) for call in draw.calls])
    for values in ways:
        changed = _with(draw.calls, name, values)
        if changed is not None:
            yield changed


def _turned(array: np.ndarray | None) -> np.ndarray | None:
    """The same values, the last first."""
    return (
        None
        if array is None
        else np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)
    )


def _with(
    calls: Sequence[Arrays], name: str, values: Sequence[np.ndarray | None]
) -> list[Arrays] | None:
    if len(values) != len(calls):
        return None
    changed: list[Arrays] = []
    moved = False
    for call, value in zip(calls, values, strict=True):
        before = call.get(name)
        if before is None or value is None or value.shape != before.shape:
            changed.append(call)
            continue
        moved |= not np.array_equal(value, before)
        changed.append({**call, name: value})
    return changed if moved else None


def _outputs(reference: Reference, params: dict[str, Any], calls: Any) -> Any:
    """None where the mixed inputs do not go together: lengths of one draw, data of another."""
    try:
        return reference.reference(params, [dict(call) for call in calls])
    except Exception:  # noqa: BLE001 - whatever a reference raises on what was not promised to it
        return None


def _equal(one: Arrays, other: Arrays | None) -> bool:
    return other is not None and all(np.array_equal(one[name], other[name]) for name in one)
