"""Source checks for paths that the input's size or magnitude picks, and for lowered precision."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from graders.auditor.arrays import EMPTY, may_be_size_zero
from graders.auditor.base import AuditInput
from graders.auditor.flow import Flow
from graders.auditor.hits import Hit
from graders.auditor.pysource import PySource
from graders.auditor.trees import walk
from graders.auditor.wires import PROOF, STRONG, WEAK, Wire, wire

# --- precision ---------------------------------------------------------------------------------

_BITS = {"float16": 16, "half": 16, "bfloat16": 16, "float32": 32, "single": 32, "float64": 64}
_BITS |= {"float8_e4m3": 8, "float8_e4m3fn": 8, "float8_e5m2": 8}


def _lowered_precision(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """Casts of live values below the least precision that the task names."""
    named = [_BITS.get(shape.dtype, 64) for shape in (*given.task.shapes, *given.task.smoke)]
    least = min(named, default=32)
    flow = given.closure.flow(source)
    for node, _names in source.calls:
        bits, subject = _cast(source, node)
        if bits is None or bits >= least or subject is None:
            continue
        if {"value", "sampled"} & set(flow.labels(subject)):
            optional = _is_conditional(source, node)
            yield source.hit(
                node,
                f"live values are cast to {bits} bits; the task names {least}",
                strength=WEAK if optional else STRONG,
            )


def _cast(source: PySource, node: ast.Call) -> tuple[int | None, ast.expr | None]:
    """Bits and subject of ``x.astype(t)``, ``numpy.asarray(x, t)``, ``numpy.float16(x)``."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "to"):
        return _bits(source, node.args[:1] + _dtype_keyword(node)), node.func.value
    names = source.names.resolve(node.func)
    subject = node.args[0] if node.args else None
    if names & {"numpy.asarray", "numpy.array", "numpy.ascontiguousarray"}:
        return _bits(source, node.args[1:2] + _dtype_keyword(node)), subject
    for name in names:
        if name.startswith("numpy.") and name.removeprefix("numpy.") in _BITS:
            return _BITS[name.removeprefix("numpy.")], subject
    return None, None


def _dtype_keyword(node: ast.Call) -> list[ast.expr]:
    return [k.value for k in node.keywords if k.arg == "dtype"]


def _bits(source: PySource, nodes: list[ast.expr]) -> int | None:
    for node in nodes:
        words = [name.split(".")[-1] for name in source.names.resolve(node)]
        words += list(source.names.strings(node))
        short = {"f2": "float16", "f4": "float32", "e": "float16", "<f2": "float16"}
        known = [_BITS[short.get(word, word)] for word in words if short.get(word, word) in _BITS]
        if known:
            return min(known)
    return None


def _is_conditional(source: PySource, wanted: ast.AST) -> bool:
    """Inside an ``if``: one path among several, perhaps one that the caller asks for."""
    return wanted in _conditional(source)


@lru_cache(maxsize=8)
def _conditional(source: PySource) -> frozenset[ast.AST]:
    found: set[ast.AST] = set()
    for node in source.nodes:  # outer ones come first
        if isinstance(node, (ast.If, ast.IfExp)) and node not in found:
            found.update(walk(node))
    return frozenset(found)


# --- paths picked by magnitude, size or a rare case --------------------------------------------


def _picked_paths(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """Branches on how large values are, or on a size, one of which does less than the other.

    A range check before a narrow type looks at magnitude, a dispatch looks at size. What asks for
    both, and then works at less precision, aims at the inputs that are timed: that is a proof.
    """
    flow = given.closure.flow(source)
    most = max((_BITS.get(shape.dtype, 0) for shape in given.task.shapes), default=32)
    for node, rest in _choices(source):
        asked = _sniffs(source, flow, node.test)
        if not asked:
            continue
        does = _does_less(source, node, rest, most)
        if does is None and "magnitude" not in asked:
            continue
        mechanism = "correctness:size-gate"
        if "magnitude" in asked:
            mechanism = "correctness:magnitude-sniff"
        elif does == _NARROW:
            mechanism = "correctness:precision"
        strength = STRONG if does else WEAK
        if does == _NARROW and len(asked) == 2:
            strength = PROOF
        what = " and the ".join(sorted(asked))
        why = f"the {what} of the input picks between two ways" + (f": {does}" if does else "")
        yield source.hit(node.test, why, mechanism=mechanism, strength=strength)


_NARROW = "one works at less precision"


def _does_less(
    source: PySource, node: ast.If | ast.IfExp, rest: list[ast.stmt], most: int
) -> str | None:
    if isinstance(node, ast.IfExp):
        ways: list[ast.AST] = [node.body, node.orelse]
    else:
        ways = [*node.body, *node.orelse]
    if any(_casts_down(source, part, most) for part in ways):
        return _NARROW
    if any(_is_blank(source, part) for part in ways) or _drops_work(node, rest):
        return "one leaves work out"
    return None


_WORK = frozenset(
    {"mean", "sum", "max", "min", "exp", "matmul", "dot", "einsum", "sqrt", "sort", "argsort"}
    | {"argpartition", "partition", "square", "var", "std", "tensordot", "inner", "log", "cumsum"}
)


def _choices(source: PySource) -> Iterator[tuple[ast.If | ast.IfExp, list[ast.stmt]]]:
    """Every choice, with the statements that run instead of its body where it leaves."""
    for owner in source.nodes:
        if isinstance(owner, ast.IfExp):
            yield owner, []
        for name in ("body", "orelse", "finalbody"):
            block = getattr(owner, name, None)
            if isinstance(block, list):
                for index, statement in enumerate(block):
                    if isinstance(statement, ast.If):
                        yield statement, block[index + 1 :]


def _drops_work(node: ast.If | ast.IfExp, rest: list[ast.stmt]) -> bool:
    """A return of plain arithmetic, where the other way reduces or multiplies matrices."""
    if isinstance(node, ast.IfExp) or not node.body:
        return False
    other = node.orelse or rest
    for short, long in ((node.body, other), (other, node.body)):
        last = short[-1] if short else None
        value = last.value if isinstance(last, ast.Return) else None
        arithmetic = value is not None and any(isinstance(p, ast.BinOp) for p in walk(value))
        if arithmetic and not _calls_in(short) and _calls_in(long) & _WORK:
            return True
    return False


def _calls_in(block: list[ast.stmt]) -> frozenset[str]:
    names: set[str] = set()
    for statement in block:
        for node in walk(statement):
            if isinstance(node, ast.Call):
                names.add(str(getattr(node.func, "attr", None) or getattr(node.func, "id", "?")))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                names.add("matmul")
    return frozenset(names)


def _sniffs(source: PySource, flow: Flow, test: ast.expr) -> frozenset[str]:
    """What a test compares with a number: the "magnitude" of the input, its "size", both."""
    found = set()
    for node in walk(test):
        if not isinstance(node, ast.Compare) or not isinstance(
            node.ops[0], (ast.Gt, ast.Lt, ast.GtE, ast.LtE)
        ):
            continue
        sides = [node.left, *node.comparators]
        numbers = [v for s in sides for v in source.names.values(s) if isinstance(v, (int, float))]
        if not any(abs(number) > 1e-30 for number in numbers):
            continue  # a test against zero is a guard, not a threshold
        labels = [set(flow.labels(side)) for side in sides]
        if any("reduced" in found_here for found_here in labels):
            found.add("magnitude")
        elif {"shape"} in labels and any(abs(number) >= 4 for number in numbers):
            found.add("size")
    return frozenset(found)


def _casts_down(source: PySource, branch: ast.AST, most: int) -> bool:
    for node in walk(branch):
        if isinstance(node, ast.Call):
            bits, _subject = _cast(source, node)
            if bits is not None and bits < most:
                return True
    return False


def _is_blank(source: PySource, branch: ast.AST) -> bool:
    """Returns a constant or unfilled memory."""
    blank = {"numpy.zeros", "numpy.zeros_like", "numpy.ones_like", "numpy.full"} | EMPTY
    for node in walk(branch):
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            calls = [value for value in values if isinstance(value, ast.Call)]
            made = [call for call in calls if source.names.resolve(call.func) & blank]
            if any(not may_be_size_zero(source, call) for call in made):
                return True
    return False


PATHS: tuple[Wire, ...] = (
    wire("lowered-precision", "correctness:precision", STRONG, _lowered_precision),
    wire("picked-path", "correctness:magnitude-sniff", WEAK, _picked_paths),
)
"""Checks of paths."""
