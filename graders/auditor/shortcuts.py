"""Source checks for work that is not done, done later, or done below its precision."""

import ast
from collections.abc import Iterator

from graders.auditor.arrays import EMPTY, may_be_size_zero
from graders.auditor.base import AuditInput
from graders.auditor.entries import entries
from graders.auditor.hits import Hit
from graders.auditor.pysource import PySource
from graders.auditor.trees import walk
from graders.auditor.wires import STRONG, WEAK, Wire, wire

# --- outputs that compute themselves later ------------------------------------------------------

_LAZY = frozenset(
    {"__array__", "__array_interface__", "__array_struct__", "__buffer__", "__dlpack__"}
)
_INDEXED = frozenset({"__getitem__", "__array_ufunc__", "__array_function__", "__getattribute__"})
_INDEXED |= {"__torch_function__", "__torch_dispatch__"}


def _lazy_outputs(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """A class that is turned into an array when it is looked at, and computes only then."""
    returned = {
        node.func.id
        for ret in source.nodes
        if isinstance(ret, ast.Return) and ret.value is not None
        for node in walk(ret.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    views = {
        name
        for node, _names in source.calls
        if isinstance(node.func, ast.Attribute) and node.func.attr == "view"
        for argument in node.args
        if isinstance(argument, ast.Name)
        for name in [argument.id]
    }
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        subclass = any(
            source.names.resolve(base) & {"numpy.ndarray", "numpy.memmap", "torch.Tensor"}
            for base in node.bases
        )
        hooks = _LAZY | _INDEXED if subclass else _LAZY
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and part.name in hooks and _computes(part):
                handed_out = node.name in returned | views
                yield source.hit(
                    part,
                    f"`{node.name}.{part.name}` computes when the output is read",
                    strength=STRONG if handed_out else WEAK,
                )


def _computes(function: ast.FunctionDef) -> bool:
    """More than handing out something held: a call that is no plain conversion."""
    plain = {"asarray", "array", "astype", "super", "view", "copy", "__array__"}
    return any(
        isinstance(node, (ast.Call, ast.BinOp))
        and not (
            isinstance(node, ast.Call)
            and (getattr(node.func, "attr", None) or getattr(node.func, "id", "")) in plain
        )
        for statement in function.body
        for node in walk(statement)
    )


# --- memory that nobody filled -----------------------------------------------------------------


def _uninitialised(source: PySource, given: AuditInput) -> Iterator[Hit]:
    for function in entries(source, given.closure.entries):
        for node in walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for value in values:
                    if _is_unfilled(source, function, value):
                        yield source.hit(node, "memory from `empty` is returned and never filled")


def _is_unfilled(source: PySource, function: ast.FunctionDef, value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        named = bool(source.names.resolve(value.func) & EMPTY)
        return named and not may_be_size_zero(source, value)
    if not isinstance(value, ast.Name):
        return False
    made = [
        b.value
        for b in source.names.bindings(value.id, value)
        if source.names.scope_of.get(value) is function
    ]
    if not made or not all(
        isinstance(m, ast.Call) and _is_unfilled(source, function, m) for m in made
    ):
        return False
    uses = [
        node
        for node in walk(function)
        if isinstance(node, ast.Name) and node.id == value.id and isinstance(node.ctx, ast.Load)
    ]
    returned = {part for ret in walk(function) if isinstance(ret, ast.Return) for part in walk(ret)}
    return all(use in returned for use in uses)


SHORTCUTS: tuple[Wire, ...] = (
    wire("lazy-output", "timing:lazy", STRONG, _lazy_outputs),
    wire("uninitialised", "correctness:uninitialised", STRONG, _uninitialised),
)
"""Checks of shortcuts."""
