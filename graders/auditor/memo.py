"""Source checks for results that were computed in an earlier call.

Strikes where an entry *returns* what lies in something that outlives the call, found by a key made
of the inputs, while what was put there was computed from inputs' contents. Honest reuse does not
strike: packed weights are used but not returned, scratch is filled before it is returned, constants
kept by shape were computed from the shape alone.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from graders.auditor.base import AuditInput
from graders.auditor.entries import Return, entries, offers, returns
from graders.auditor.flow import DISK, Flow
from graders.auditor.hits import Hit
from graders.auditor.labels import KEYS, Lookup
from graders.auditor.pysource import PySource
from graders.auditor.trees import walk
from graders.auditor.wires import PROOF, STRONG, WEAK, Wire, wire

_MECHANISM = {
    "content": "cache:content",
    "sampled": "cache:sampled",
    "reduced": "cache:sampled",
    "pointer": "cache:pointer",
    "identity": "cache:object",
    "shape": "cache:shape",
}
_KEY_WORDS = {
    "content": "a digest of its contents",
    "sampled": "a few of its elements",
    "reduced": "a sum or an extreme of its elements",
    "pointer": "its address",
    "identity": "its identity",
    "shape": "its shape",
}


def _returned_lookups(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """What a helper returns need not be returned by the entry: alone it proves nothing."""
    flow = given.closure.flow(source)
    helps = not flow.is_first and not offers(source, given.closure.entries)
    for function in entries(source, given.closure.entries):
        for place in returns(function):
            for lookup in _suspects(flow, place):
                hit = _strike(source, flow, place.node, lookup)
                yield replace(hit, strength=STRONG) if helps else hit


def _strike(source: PySource, flow: Flow, node: ast.Return, lookup: Lookup) -> Hit:
    kind = next(key for key in KEYS if key in lookup.keys)
    mechanism = _MECHANISM[kind]
    if lookup.store == DISK:
        mechanism = "cache:disk"
    certain = kind in ("content", "sampled")
    if certain and (_is_table(flow, lookup.store) or _is_made(flow, lookup.store)):
        mechanism = "cache:public-seed"
    why = f"returns what lies in `{lookup.store}`, found by {_KEY_WORDS[kind]} of an input"
    return source.hit(node, why, mechanism=mechanism, strength=PROOF if certain else STRONG)


def _suspects(flow: Flow, place: Return) -> Iterator[Lookup]:
    value = place.node.value
    if value is None or _is_rewritten(place):
        return
    for label in flow.labels(value):
        if not isinstance(label, Lookup):
            continue
        keys = label.keys or frozenset(_keys_of_tests(flow, place))
        stored = flow.stored.get(label.store, set())
        known = keys & {"content", "sampled"} and (
            _is_table(flow, label.store) or _is_made(flow, label.store)
        )
        if keys & set(KEYS) and ("value" in stored or known):
            yield Lookup(label.store, frozenset(keys))


def _is_table(flow: Flow, store: str) -> bool:
    """A dictionary that is written out in the source."""
    table = flow.links.literals.get(store)
    return isinstance(table, ast.Dict) and bool(table.keys)


def _is_made(flow: Flow, store: str) -> bool:
    """Filled while the module was being imported, and by no call."""
    stored = flow.stored.get(store, set())
    return "made" in stored and "value" not in stored


def _keys_of_tests(flow: Flow, place: Return) -> Iterator[str]:
    """How a kept single result is recognised: ``if x is self.last: return self.out``."""
    for test in place.tests:
        for node in walk(test):
            if isinstance(node, ast.Compare):
                yield from _keys_of_compare(flow, node)
            elif isinstance(node, ast.Call):
                names = flow.source.names.resolve(node.func)
                sides = [flow.labels(argument) for argument in node.args]
                alike = names & {"numpy.array_equal", "numpy.allclose", "numpy.array_equiv"}
                if alike and any("value" in s for s in sides) and any("state" in s for s in sides):
                    yield "sampled" if any("sampled" in s for s in sides) else "content"


def _keys_of_compare(flow: Flow, node: ast.Compare) -> Iterator[str]:
    sides = [flow.labels(side) for side in (node.left, *node.comparators)]
    if not any("state" in side for side in sides):
        return
    if isinstance(node.ops[0], ast.Is) and any("value" in s and "state" not in s for s in sides):
        yield "identity"
    for side in sides:
        if "state" not in side:
            yield from (label for label in side if isinstance(label, str) and label in KEYS)


def _is_rewritten(place: Return) -> bool:
    """True when the returned name is written to, unconditionally, before this return."""
    names = {n.id for n in walk(place.node) if isinstance(n, ast.Name)}
    for block, index in place.blocks:
        for statement in block[:index]:
            if _always_writes(statement, names):
                return True
    return False


def _always_writes(statement: ast.stmt, names: set[str]) -> bool:
    if isinstance(statement, ast.If):
        branches = [statement.body, statement.orelse]
        return all(
            branch and (_exits(branch) or any(_always_writes(s, names) for s in branch))
            for branch in branches
        )
    return any(_writes(node, names) for node in walk(statement))


def _exits(block: list[ast.stmt]) -> bool:
    return isinstance(block[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _writes(node: ast.AST, names: set[str]) -> bool:
    """A store into an array that is returned, or its passing to what may fill it."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return _base(node.value) in names
    if isinstance(node, ast.AugAssign):
        return _base(node.target) in names
    if isinstance(node, ast.Call):
        outs = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
        if any(_base(out) in names for out in outs):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("fill", "put"):
            return _base(node.func.value) in names
        reads = isinstance(node.func, ast.Name) and node.func.id in _READERS
        return not reads and any(_is_passed(argument, names) for argument in node.args)
    return False


_READERS = frozenset({"isinstance", "len", "id", "print", "type", "hash", "repr", "str"})


def _is_passed(argument: ast.expr, names: set[str]) -> bool:
    """``f(out)``, ``f(out.ctypes.data)``, ``f(ptr(out))``: the callee can write."""
    return any(isinstance(node, ast.Name) and node.id in names for node in walk(argument))


def _base(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


# --- answers carried along ---------------------------------------------------------------------


def _public_digests(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """A digest of an input compared with a known one, or looked up in a table of the source."""
    flow = given.closure.flow(source)
    for node in source.nodes:
        if _looks_up_digest(flow, node):
            yield source.hit(
                node, "a digest of the input is looked up in a table of the source", strength=PROOF
            )
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        labels = [flow.labels(side) for side in sides]
        digest = any(
            {"content", "sampled"} & set(found) and "state" not in found for found in labels
        )
        if digest and any(_is_digest_constant(source, side) for side in sides):
            yield source.hit(node, "a digest of the input is compared with a known one")


def _looks_up_digest(flow: Flow, node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        table, keys = node.value, [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        table, keys = node.func.value, node.args if node.func.attr == "get" else []
    else:
        return False
    store = flow.stores.name(table)
    return (
        store is not None
        and _is_table(flow, store)
        and any({"content", "sampled"} & set(flow.labels(key)) for key in keys)
    )


def _is_digest_constant(source: PySource, node: ast.expr) -> bool:
    for value in source.names.values(node):
        if (
            isinstance(value, str)
            and len(value) >= 8
            and all(c in "0123456789abcdef" for c in value)
        ):
            return True
        if isinstance(value, bytes) and len(value) >= 8:
            return True
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 24:
            return True
    return False


_RNG = ("numpy.random.", "random.Random", "random.seed")


def _precomputed(source: PySource, given: AuditInput) -> Iterator[Hit]:
    """Inputs drawn, the entries' work done on them and kept, while the module is being imported.

    A tuner that draws inputs and keeps times is honest: what reads a clock is weak.
    """
    work = _work_of_entries(source, given.closure.entries)
    for statement in source.top_level():
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            continue
        called = list(_reach(source, statement))
        draws = any(
            name.startswith(_RNG) or name.endswith(".make_inputs")
            for node in called
            if isinstance(node, ast.Call)
            for name in source.names.resolve(node.func)
        ) or any(isinstance(node, ast.Name) and node.id == "make_inputs" for node in called)
        words = {node.id for node in called if isinstance(node, ast.Name)}
        keeps = any(
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) for node in called
        ) or any(isinstance(node, ast.DictComp) for node in called)
        if draws and keeps and (words & work or "make_inputs" in words):
            clock = any(_is_clock_read(source, node) for node in called)
            why = "answers of drawn inputs are computed at import and kept"
            yield source.hit(statement, why, strength=WEAK if clock else None)


def _is_clock_read(source: PySource, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(
        name.startswith(("time.", "timeit.")) for name in source.names.resolve(node.func)
    )


def _work_of_entries(source: PySource, names: frozenset[str]) -> frozenset[str]:
    """The entries of a file and the own functions that they call."""
    defined = {s.name for s in source.tree.body if isinstance(s, ast.FunctionDef)}
    reached = {
        node.id
        for function in entries(source, names)
        for node in _reach(source, function)
        if isinstance(node, ast.Name)
    }
    return frozenset((reached & defined) | names)


def _reach(source: PySource, statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes of a statement and of the own functions that it calls, transitively."""
    defined = {s.name: s for s in source.tree.body if isinstance(s, ast.FunctionDef)}
    seen: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        for node in walk(waiting.pop()):
            yield node
            if isinstance(node, ast.Name) and node.id in defined and node.id not in seen:
                seen.add(node.id)
                waiting.append(defined[node.id])


MEMO: tuple[Wire, ...] = (
    wire("returned-lookup", "cache:object", STRONG, _returned_lookups),
    wire("known-digest", "cache:public-seed", STRONG, _public_digests),
    wire("precomputed", "cache:public-seed", STRONG, _precomputed),
)
"""Checks for answers of earlier calls."""
