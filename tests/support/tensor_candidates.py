"""Submissions to tasks of tensors, run in the test's own process: Triton's in its interpreter."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from graders.closeness import compare_all
from graders.worker import arrays
from tasks.case import Arrays, Case
from tasks.loader import execute, load_reference, submission_dir
from tasks.properties import all_cases
from tasks.spec import Task
from tasks.tensors import TensorReference, as_array

WHOLE_PLAN = 7
"""A seed."""


def shipped_module(task: Task, kind: str) -> ModuleType:
    """A shipped submission, imported from where it lies: Triton reads the source of its kernels."""
    return module_of(submission_dir(task, kind) / task.interface.file)


Change = tuple[str, str] | str
"""One text replaced by another, or lines added."""


def mutant(task: Task, kind: str, change: Change | Sequence[Change], folder: Path) -> ModuleType:
    """A shipped submission with one change, or a list of them, written to ``folder``."""
    source = (submission_dir(task, kind) / task.interface.file).read_text("utf-8")
    for each in change if isinstance(change, list) else [change]:
        if isinstance(each, str):
            source += each
        else:
            assert each[0] in source, each[0]
            source = source.replace(*each)
    path = folder / task.interface.file
    path.write_text(source, "utf-8")
    return module_of(path)


def module_of(path: Path) -> ModuleType:
    """One file, imported under a name of its own; no bytecode is left."""
    name = f"_candidate_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


def tensor_reference(task: Task) -> TensorReference:
    """The task's reference, for arrays and for tensors."""
    found = load_reference(task)
    assert isinstance(found, TensorReference)
    return found


def quick_plan(task: Task) -> list[Case]:
    """The nominal smoke shapes, and all other cases of the quick tier."""
    reference = tensor_reference(task)
    found = []
    for shape in task.smoke:
        made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, WHOLE_PLAN)
        params, calls = made["params"], made["calls"]
        expected = reference.reference(params, calls)
        found.append(Case(shape.name, "nominal", "0", params, calls, expected))
    return [*found, *all_cases(task, reference, WHOLE_PLAN, "quick")]


def first_failure(task: Task, offered: Any, cases: Sequence[Case]) -> str | None:
    """The first case that a module gets wrong, and how."""
    return next((told for case in cases if (told := failure(task, offered, case))), None)


def failure(task: Task, offered: Any, case: Case) -> str | None:
    """What is wrong with one case."""
    reference = tensor_reference(task)
    adapter = execute(task, "public/adapter.py", ("setup", "run"))
    names = {entry.name: getattr(offered, entry.name, None) for entry in task.interface.entries}
    found, params = SimpleNamespace(**names), dict(case.params)
    if "weights" in params:
        params["weights"] = reference.typed(params["weights"], task.interface.raw_weights)  # type: ignore[arg-type]
    state = adapter.setup(found, params)
    for inputs, wanted in zip(case.calls, case.expected, strict=True):
        given = {name: value.clone() for name, value in reference.typed(inputs).items()}
        got = _leaves(task, adapter.run(found, state, given))
        for close in compare_all(task, case, got, wanted, inputs):
            if not close.passed:
                return f"{case.name}: {close.leaf}: {close.detail}"
    return None


def _leaves(task: Task, result: Any) -> Arrays:
    names = task.interface.outputs
    leaves = {name: arrays.leaf(result, name, alone=len(names) == 1) for name in names}
    return {name: as_array(leaf) for name, leaf in leaves.items()}
