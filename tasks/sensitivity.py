"""Whether every declared input matters: other values of it must move the output.

An input that the output does not depend on, within its tolerance, is one that a submission may leave
unread.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tasks.case import Arrays
from tasks.impostors import Draw, passes
from tasks.spec import Task
from tasks.tensors import Reference, raw_of


def ignored_inputs(task: Task, path: str, reference: Reference, draw: Draw) -> Iterator[str]:
    """Inputs, and weights as a whole, whose values make no difference."""
    for name in draw.calls[0]:
        ways = [calls for calls in _altered(task, draw, name) if calls is not None]
        results = [_outputs(reference, draw.params, calls) for calls in ways]
        tried = [result for result in results if result is not None]
        if tried and all(passes(task, result, draw.outputs) for result in tried):
            yield (
                f"{path}: other values of the input `{name}` move the output by less than its "
                "tolerance; tighten it, or leave the input out"
            )
    weights, other = draw.params.get("weights"), draw.other_params.get("weights")
    if weights and not _equal(weights, other):
        got = _outputs(reference, {**draw.params, "weights": other}, draw.calls)
        if got is not None and passes(task, got, draw.outputs):
            yield f"{path}: other weights move the output by less than its tolerance; tighten it"


def _altered(task: Task, draw: Draw, name: str) -> Iterator[list[Arrays] | None]:
    """The calls with another draw's values of one input, or with its own in another order.

    None where that changes nothing. What is no float may be places or lengths, and is only dealt.
    """
    first = draw.calls[0][name]
    is_float = first.dtype.kind == "f" or raw_of(task.interface.raw_inputs, name)
    yield _with(draw.calls, name, [call.get(name) for call in draw.other_calls])
    if is_float:
        yield _with(draw.calls, name, [_turned(call.get(name)) for call in draw.calls])


def _turned(array: np.ndarray | None) -> np.ndarray | None:
    """The same values, the last first."""
    return None if array is None else np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(
        array.shape
    )


def _with(
    calls: Sequence[Arrays], name: str, values: Sequence[np.ndarray | None]
) -> list[Arrays] | None:
    if len(values) != len(calls):
        return None
    changed, moved = [], False
    for call, value in zip(calls, values, strict=True):
        before = call.get(name)
        fits = before is not None and value is not None and value.shape == before.shape
        moved |= fits and not np.array_equal(value, before)
        changed.append({**call, name: value} if fits else call)
    return changed if moved else None


def _outputs(reference: Reference, params: dict[str, Any], calls: Any) -> Any:
    """None where the mixed inputs do not go together: lengths of one draw, data of another."""
    try:
        return reference.reference(params, [dict(call) for call in calls])
    except Exception:  # noqa: BLE001 - whatever a reference raises on what was not promised to it
        return None


def _equal(one: Arrays, other: Arrays | None) -> bool:
    return other is not None and all(np.array_equal(one[name], other[name]) for name in one)
