"""Source checks for work that is not done, done later, or done below its precision."""

import ast
from collections.abc import Iterator

from graders.auditor.base import AuditInput, Hit
from graders.auditor.entries import entries
from graders.auditor.flow import Flow, flow_of
from graders.auditor.pysource import PySource
from graders.auditor.wires import STRONG, WEAK, Wire, wire

# --- outputs that compute themselves later ------------------------------------------------------

_LAZY = frozenset(
    {"__array__", "__array_interface__", "__array_struct__", "__buffer__", "__dlpack__"}
)
_INDEXED = frozenset({"__getitem__", "__array_ufunc__", "__array_function__", "__getattribute__"})


def _lazy_outputs(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """A class that is turned into an array when it is looked at, and computes only then."""
    returned = {
        node.func.id
        for ret in source.nodes
        if isinstance(ret, ast.Return) and ret.value is not None
        for node in ast.walk(ret.value)
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
        for node in ast.walk(statement)
    )


# --- memory that nobody filled -----------------------------------------------------------------

_EMPTY = frozenset({"numpy.empty", "numpy.empty_like", "numpy.ndarray", "torch.empty"})


def _uninitialised(source: PySource, given: AuditInput) -> Iterator[Hit]:
    for function in entries(source, given.closure.entries):
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for value in values:
                    if _is_unfilled(source, function, value):
                        yield source.hit(node, "memory from `empty` is returned and never filled")


def _is_unfilled(source: PySource, function: ast.FunctionDef, value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        named = bool(source.names.resolve(value.func) & _EMPTY)
        return named and not _may_be_size_zero(source, value)
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
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == value.id and isinstance(node.ctx, ast.Load)
    ]
    returned = {
        part for ret in ast.walk(function) if isinstance(ret, ast.Return) for part in ast.walk(ret)
    }
    return all(use in returned for use in uses)


def _may_be_size_zero(source: PySource, call: ast.Call) -> bool:
    return any(0 in _numbers(source, argument) for argument in call.args[:1])


def _numbers(source: PySource, node: ast.expr) -> list[object]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [value for part in parts for value in source.names.values(part)]


# --- precision ---------------------------------------------------------------------------------

_BITS = {"float16": 16, "half": 16, "bfloat16": 16, "float32": 32, "single": 32, "float64": 64}


def _lowered_precision(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """Casts of live values below the least precision that the task names."""
    named = [_BITS.get(shape.dtype, 64) for shape in (*given.task.shapes, *given.task.smoke)]
    least = min(named, default=32)
    flow = flow_of(source)
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
    return any(
        isinstance(node, (ast.If, ast.IfExp)) and any(part is wanted for part in ast.walk(node))
        for node in source.nodes
    )


# --- paths picked by magnitude, size or a rare case --------------------------------------------

_EXTREMES = frozenset({"max", "min", "amax", "amin", "std", "mean", "sum", "ptp", "norm"})


def _picked_paths(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """Branches on how large values are, or on a size, one of which does less than the other."""
    flow = flow_of(source)
    most = max((_BITS.get(shape.dtype, 0) for shape in given.task.shapes), default=32)
    for node, rest in _choices(source):
        what = _sniffs(source, flow, node.test)
        if what is None:
            continue
        ways = (
            [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
        )
        if any(_casts_down(source, part, most) for part in ways):
            mechanism, does = "correctness:precision", "one works at less precision"
        elif any(_is_blank(source, part) for part in ways) or _drops_work(node, rest):
            mechanism = f"correctness:{_BRANCH[what]}"
            does = "one leaves work out"
        elif what == "magnitude":
            yield source.hit(node.test, "the magnitude of the input picks the path", strength=WEAK)
            continue
        else:
            continue
        why = f"the {what} of the input picks between two ways, and {does}"
        yield source.hit(node.test, why, mechanism=mechanism, strength=STRONG)


_BRANCH = {"magnitude": "magnitude-sniff", "size": "size-gate"}
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
        arithmetic = value is not None and any(isinstance(p, ast.BinOp) for p in ast.walk(value))
        if arithmetic and not _calls_in(short) and _calls_in(long) & _WORK:
            return True
    return False


def _calls_in(block: list[ast.stmt]) -> frozenset[str]:
    names: set[str] = set()
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                names.add(str(getattr(node.func, "attr", None) or getattr(node.func, "id", "?")))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                names.add("matmul")
    return frozenset(names)


def _sniffs(source: PySource, flow: Flow, test: ast.expr) -> str | None:
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or not isinstance(
            node.ops[0], (ast.Gt, ast.Lt, ast.GtE, ast.LtE)
        ):
            continue
        sides = [node.left, *node.comparators]
        numbers = [v for s in sides for v in source.names.values(s) if isinstance(v, (int, float))]
        if not any(abs(number) > 1e-30 for number in numbers):
            continue  # a test against zero is a guard, not a threshold
        if any(_is_extreme(flow, part) for side in sides for part in ast.walk(side)):
            return "magnitude"
        sized = any(set(flow.labels(side)) == {"shape"} for side in sides)
        if sized and any(abs(number) >= 4 for number in numbers):
            return "size"
    return None


def _is_extreme(flow: Flow, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        return name in _EXTREMES and bool({"value", "sampled"} & set(flow.labels(node)))
    return False


def _casts_down(source: PySource, branch: ast.AST, most: int) -> bool:
    for node in ast.walk(branch):
        if isinstance(node, ast.Call):
            bits, _subject = _cast(source, node)
            if bits is not None and bits < most:
                return True
    return False


def _is_blank(source: PySource, branch: ast.AST) -> bool:
    """Returns a constant or unfilled memory."""
    blank = {"numpy.zeros", "numpy.zeros_like", "numpy.ones_like", "numpy.full"} | _EMPTY
    for node in ast.walk(branch):
        if isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            calls = [value for value in values if isinstance(value, ast.Call)]
            made = [call for call in calls if source.names.resolve(call.func) & blank]
            if any(not _may_be_size_zero(source, call) for call in made):
                return True
    return False


SHORTCUTS: tuple[Wire, ...] = (
    wire("lazy-output", "timing:lazy", STRONG, _lazy_outputs),
    wire("uninitialised", "correctness:uninitialised", STRONG, _uninitialised),
    wire("lowered-precision", "correctness:precision", STRONG, _lowered_precision),
    wire("picked-path", "correctness:magnitude-sniff", WEAK, _picked_paths),
)
"""Checks of shortcuts."""
