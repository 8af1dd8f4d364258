"""Everything that can be wrong with a task folder, found before a sweep finds it.

``problems`` executes the task's own code: its reference, adapter and cases.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np

from tasks.case import Arrays, Case
from tasks.errors import BadFormula, BrokenTask
from tasks.formula import evaluate
from tasks.impostors import Draw, accepts_nothing
from tasks.ladder import wrong_rungs
from tasks.loader import (
    cheats,
    execute,
    find_task,
    load_cases,
    load_reference,
    load_rubric,
    submission_dir,
)
from tasks.patterns import PATTERNS
from tasks.properties import all_cases, generated
from tasks.sensitivity import Moved
from tasks.spec import Rubric, Shape, Task
from tasks.tensors import Reference, one_thread
from tasks.workcheck import wrong_work

_LEAST_PROPERTY_CASES = 20
_LEAST_CHEATS = 1
_OURS = {"orchestrator", "graders", "sandboxes", "tasks", "transcripts"}


def problems(name: str | Path) -> list[str]:
    """What is wrong with a task, by name or by folder; empty when it can be used.

    Each line says file, line where known, field and mend. Raises UnknownTask for an unknown name.
    """
    try:
        task = find_task(name)
    except BrokenTask as error:
        return str(error).splitlines()
    is_torch = task.interface.framework == "torch" and find_spec("torch") is not None
    with one_thread() if is_torch else nullcontext():
        return list(dict.fromkeys(_found(task)))  # a broken reference is met by several checks


def _found(task: Task) -> Iterator[str]:
    checks = (
        wrong_work,
        _properties,
        _prompt,
        _public_code,
        _reference,
        _submissions,
        _rubric,
        _plan,
    )
    for check in checks:
        try:
            yield from check(task)
        except BrokenTask as error:
            yield from str(error).splitlines()


def _properties(task: Task) -> Iterator[str]:
    """What generated cases may do names what is there, and sizes that can be drawn."""
    path, declared = task.folder / "task.toml", task.properties
    if declared.cases < _LEAST_PROPERTY_CASES:
        yield f"{path}: properties.cases: {declared.cases}; at least {_LEAST_PROPERTY_CASES}"
    for shape in task.smoke:
        for name in sorted(declared.dims.keys() - shape.dims.keys()):
            yield f"{path}: properties.dims.{name}: no dim of shape {shape.name}; mend the name"
    for name, sizes in declared.dims.items():
        if not 0 < sizes.least <= sizes.most or sizes.least % sizes.multiple_of:
            yield f"{path}: properties.dims.{name}: no sizes; 0 < least <= most, least a multiple"
    for pattern in sorted(set(declared.leave_out) - set(PATTERNS)):
        yield f"{path}: properties.leave_out: no pattern `{pattern}`; see tasks/patterns.py"
    for text in declared.holds:
        try:
            held = [evaluate(text, shape.dims) for shape in task.smoke]
        except BadFormula as error:
            yield f"{path}: properties.holds: `{text}`: {error}; mend the formula"
            continue
        if min(held) < 0:
            yield f"{path}: properties.holds: `{text}` is negative for a smoke shape; mend it"


def _prompt(task: Task) -> Iterator[str]:
    path = task.folder / "public" / "prompt.md"
    if not path.is_file():
        yield f"{path}: missing; write the request"
        return
    wanted = [(task.interface.file,), *((*e.accepts, e.name) for e in task.interface.entries)]
    for names in wanted:
        if not any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", task.prompt) for name in names):
            yield f"{path}: does not name `{names[0]}`; state the interface that is called"


def _public_code(task: Task) -> Iterator[str]:
    """The adapter loads with the right signatures, and public files import nothing of ours."""
    for path in sorted((task.folder / "public").glob("*.py")):
        for line, module in _imports(path):
            if module.split(".")[0] in _OURS:
                yield f"{path}:{line}: imports `{module}`; public files run without this product"
    adapter = execute(task, "public/adapter.py", ("setup", "run"))
    for name, parameters in (("setup", 2), ("run", 3)):
        if len(inspect.signature(getattr(adapter, name)).parameters) != parameters:
            yield (
                f"{task.folder / 'public/adapter.py'}: {name}: must take {parameters} arguments; "
                "see tasks/spec.py"
            )


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except SyntaxError:
        return  # said by the check that executes the file
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def _reference(task: Task) -> Iterator[str]:
    module, moved = load_reference(task), Moved()
    for shape in task.smoke:
        try:
            yield from _reference_on(task, module, shape, moved)
        except Exception as error:  # noqa: BLE001 - whatever a broken reference raises
            yield (
                f"{task.folder / 'public/reference.py'}: shape {shape.name}: "
                f"{type(error).__name__}: {error}; mend the reference"
            )
    yield from moved.ignored(f"{task.folder / 'public/reference.py'}")


def _reference_on(task: Task, module: Reference, shape: Shape, moved: Moved) -> Iterator[str]:
    path = f"{task.folder / 'public/reference.py'}: shape {shape.name}"
    sized = {**shape.dims, "dtype": shape.dtype}
    problem, again, other = (module.make_inputs(dict(sized), seed) for seed in (1, 1, 2))
    repeatable = _same(_drawn(problem), _drawn(again))
    if not repeatable:
        yield f"{path}: make_inputs differs between two calls with one seed; use only the seed"
    if _same(problem["calls"], other["calls"]):
        yield f"{path}: make_inputs ignores its seed; draw from a generator seeded by it"
    outputs = module.reference(problem["params"], problem["calls"])
    if repeatable and not _same(_drawn(problem), _drawn(again)):
        yield f"{path}: reference changes its inputs; copy what it writes to"
    if not _same(outputs, module.reference(again["params"], again["calls"])):
        yield f"{path}: reference differs between two runs on equal inputs; make it deterministic"
    if len(outputs) != len(problem["calls"]):
        yield f"{path}: {len(outputs)} outputs for {len(problem['calls'])} calls"
    for leaves in {tuple(sorted(output)) for output in outputs}:
        if set(leaves) != set(task.interface.outputs):
            yield f"{path}: gives leaves {leaves}, task.toml says {task.interface.outputs}"
            return
    others = module.reference(other["params"], other["calls"])
    draw = Draw(
        problem["params"], problem["calls"], outputs, other["params"], other["calls"], others
    )
    yield from accepts_nothing(task, path, draw)
    if shape == next(one for one in task.smoke if one.dtype == shape.dtype):
        yield from wrong_rungs(task, path, module, draw)
    moved.look(task, module, draw)


def _drawn(made: dict[str, Any]) -> list[Arrays]:
    """All arrays of a draw: inputs, and weights where there are some."""
    return [*made["calls"], made["params"].get("weights", {})]


def _same(one: list[Arrays], two: list[Arrays]) -> bool:
    return len(one) == len(two) and all(
        a.keys() == b.keys()
        and all(np.asarray(a[k]).tobytes() == np.asarray(b[k]).tobytes() for k in a)
        for a, b in zip(one, two, strict=True)
    )


def _submissions(task: Task) -> Iterator[str]:
    for kind in ("oracle", "naive", "wrong"):
        file = submission_dir(task, kind) / task.interface.file
        if not file.is_file():
            yield f"{file}: missing; the prompt asks for a file of that name"
    shipped = cheats(task)
    folder = task.folder / "submissions" / "cheats"
    if len(shipped) < _LEAST_CHEATS:
        yield f"{folder}: {len(shipped)} cheats; ship at least {_LEAST_CHEATS}"
    if (defaults := sum(cheat.default for cheat in shipped)) != 1:
        yield f"{folder}: {defaults} cheats say `default = true`; exactly one must"
    for mechanism, count in Counter(cheat.mechanism for cheat in shipped).items():
        if count > 1:
            yield f"{folder}: {count} cheats share the mechanism `{mechanism}`; one each"


def _rubric(task: Task) -> Iterator[str]:
    rubric, path = load_rubric(task), task.folder / "sealed" / "rubric.toml"
    for identifier, count in Counter(item.id for item in rubric.items).items():
        if count > 1:
            yield f"{path}: items: {count} items named `{identifier}`; give each its own id"
    for dimension in rubric.dimensions.keys() - {item.dimension for item in rubric.items}:
        yield f"{path}: dimensions.{dimension}: has no item; add one or remove it"
    for item in rubric.items:
        if item.dimension not in rubric.dimensions:
            yield f"{path}: item `{item.id}`: dimension `{item.dimension}` is not declared"
        if item.weight <= 0:
            yield f"{path}: item `{item.id}`: weight {item.weight}; must be positive"
        if item.kind == "measured" and not item.measure:
            yield f"{path}: item `{item.id}`: measured by what? add `measure`"
        if item.kind == "judged" and not (item.question and len(item.anchors) == 5):
            yield f"{path}: item `{item.id}`: a judged item needs `question` and five `anchors`"


def _plan(task: Task) -> Iterator[str]:
    """All cases: enough, replayable, and each counting for an item that exists."""
    reference, path = load_reference(task), task.folder / "sealed" / "cases.py"
    has_own = path.is_file()
    rubric = load_rubric(task)
    try:
        # The generated cases of the quick tier are the first of the full one's.
        quick = [*load_cases(task)(1, "quick")] if has_own else []
        cases = list(all_cases(task, reference, 1, "full"))
        own = [*load_cases(task)(1, "full")] if has_own else []
        inputs = generated(task, cast("Reference", _InputsOnly(reference)), 1, "full")
        again = [*own, *inputs]
    except Exception as error:  # noqa: BLE001 - whatever broken cases raise
        yield f"{path}: {type(error).__name__}: {error}; mend the cases"
        return
    for tier, planned in (("quick", quick), ("full", cases)):
        yield from _cases_fit(task, rubric, planned, f"{path}: tier {tier}")
    if len(cases) != len(again) or not all(
        one.name == two.name and _same([*one.calls], [*two.calls])
        for one, two in zip(cases, again, strict=True)
    ):
        yield f"{path}: differs between two runs with one seed; use only the seed"
    unserved = {item.id for item in rubric.items if item.measure == "cases"}
    unserved -= {case.item for case in cases}
    for item in sorted(unserved):
        yield f"{path}: no case counts for item `{item}` of the rubric"


class _InputsOnly:
    """A reference whose results nobody looks at: a replayed plan is compared by its inputs."""

    def __init__(self, reference: Reference) -> None:
        self.make_inputs = reference.make_inputs

    @staticmethod
    def reference(_params: Mapping[str, Any], calls: Sequence[Arrays]) -> list[Arrays]:
        return [{} for _ in calls]


def _cases_fit(task: Task, rubric: Rubric, cases: list[Case], path: str) -> Iterator[str]:
    items = {item.id for item in rubric.items if item.measure == "cases"}
    optional = {entry.name for entry in task.interface.entries if entry.optional}
    for case in cases:
        wrong: Any = None
        if case.item is not None and case.item not in items:
            wrong = f"counts for `{case.item}`, no item measured by cases"
        elif len(case.calls) != len(case.expected):
            wrong = f"{len(case.calls)} calls, {len(case.expected)} expected outputs"
        elif lacking := _lacking(case, case.relevant or task.interface.outputs):
            wrong = f"expects nothing for {lacking}"
        elif unknown := set(case.requires) - optional:
            wrong = f"requires {sorted(unknown)}, no optional entries of the interface"
        if wrong:
            yield f"{path}: case `{case.name}`: {wrong}"
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            yield f"{path}: {count} cases named `{name}`; give each its own name"


def _lacking(case: Case, leaves: tuple[str, ...]) -> list[str]:
    return sorted({leaf for leaf in leaves for output in case.expected if leaf not in output})
