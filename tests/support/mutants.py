"""Mutants: a submission changed in one place, and the first case of a plan that notices."""

from collections.abc import Sequence

import numpy as np

from candidates import entries, outputs
from graders.closeness import compare_all
from graders.worker import arrays
from tasks.case import Case
from tasks.spec import Task

STALE = """

def stale(function):
    kept = {}

    def call(x, *others):
        if x.shape not in kept:
            kept[x.shape] = function(x, *others)
        return kept[x.shape]

    return call
"""
"""Append `entry = stale(entry)` to it: the first result of a shape is given again and again."""


def mutated(source: str, change: str | tuple[str, str]) -> str:
    """A source with lines added, or with one text replaced by another."""
    if isinstance(change, str):
        return source + change
    assert change[0] in source
    return source.replace(*change)


def first_failure(task: Task, source: str, cases: Sequence[Case]) -> str | None:
    """The first case that a source gets wrong; cases of what it does not offer are left out."""
    offered = entries(task, source)
    for case in cases:
        if all(getattr(offered, name) is not None for name in case.requires) and wrong(
            task, offered, case
        ):
            return case.name
    return None


def wrong(task: Task, offered: object, case: Case) -> bool:
    names = task.interface.outputs
    try:
        with np.errstate(all="ignore"):
            made = zip(outputs(task, offered, case), case.expected, case.calls, strict=True)
            for result, wanted, inputs in made:
                got = {name: arrays.leaf(result, name, alone=len(names) == 1) for name in names}
                if not all(close.passed for close in compare_all(task, case, got, wanted, inputs)):
                    return True
    except Exception:
        return True
    return False
