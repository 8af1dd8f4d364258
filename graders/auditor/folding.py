"""What an expression can be, decided without running it: constants folded, names followed.

Hiding a name costs an author one line (``getattr(np, "all" + "close")``); following it is what
lets the checks speak of what code does instead of what it spells. Both answers are sets, since a
name may be bound more than once, and both are empty where nothing is known.
"""

import ast
import builtins
import itertools
import operator
from collections.abc import Iterator
from typing import TypeVar

from graders.auditor.constants import (
    BINARY,
    FUNCTIONS_OF_CONSTANTS,
    MAX_TERMS,
    STR_METHODS,
    added,
    folded,
    method_of_text,
    summands,
)
from graders.auditor.scopes import Scopes
from graders.auditor.trees import charge

_T = TypeVar("_T")

MAX_VALUES = 64  # more is an interpreter's work, not a reader's
MAX_STEPS = 10_000
"""Expressions looked at to answer one question: ``a = b if c else b`` forty times over would take
forever, and is written by nobody who wants to be read."""
_MAX_DEPTH = 40


class Names(Scopes):
    """Bindings, and what expressions denote or are because of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._resolving: set[tuple[int, str]] = set()
        self._cache: dict[ast.AST, frozenset[str]] = {}
        self._questions = 0
        self._steps = 0
        self._most = MAX_STEPS
        self.given_up: list[int] = []  # lines of expressions that were not followed to the end

    # --- which object an expression names ------------------------------------------------------

    def resolve(self, node: ast.AST) -> frozenset[str]:
        """Dotted names of the module attributes that ``node`` may denote, builtins included."""
        known = self._cache.get(node)
        if known is None:
            known = frozenset(self._asked(node, self._resolve(node, 0)))
            if not self._resolving:
                self._cache[node] = known
        return known

    def _asked(self, node: ast.AST, answers: Iterator[_T]) -> Iterator[_T]:
        """At most ``MAX_VALUES`` answers, with steps counted from the outermost question on."""
        if self._questions == 0:
            self._steps = 0
        self._questions += 1
        try:
            yield from itertools.islice(answers, MAX_VALUES)
        finally:
            self._questions -= 1
            if self._questions == 0 and self._steps > self._most:
                self.given_up.append(getattr(node, "lineno", 1))
                self._most = max(self._most // 2, 100)  # a source like this has more of them

    def _has_steps(self, _: object) -> bool:
        return self._steps <= self._most

    def _goes_on(self, depth: int) -> bool:
        self._steps += 1
        if self._steps > self._most:
            return False
        charge(1)
        return depth <= _MAX_DEPTH

    def _resolve(self, node: ast.AST, depth: int) -> Iterator[str]:  # noqa: C901 - one case a node type
        if not self._goes_on(depth):
            return
        match node:
            case ast.Name():
                yield from self._resolve_name(node, depth)
            case ast.Attribute():
                for base in self._resolve(node.value, depth + 1):
                    yield _member(base, node.attr)
            case ast.Subscript():
                yield from self._member_by_key(node.value, node.slice, depth)
            case ast.Call():
                yield from self._resolve_call(node, depth)
            case ast.IfExp():
                yield from self._resolve(node.body, depth + 1)
                yield from self._resolve(node.orelse, depth + 1)
            case ast.BoolOp():
                for value in node.values:
                    yield from self._resolve(value, depth + 1)
            case ast.NamedExpr():
                yield from self._resolve(node.value, depth + 1)

    def _resolve_name(self, node: ast.Name, depth: int) -> Iterator[str]:
        scope = self.scope_of.get(node, self.tree)
        if (id(scope), node.id) in self._resolving:
            return
        found = self.bindings(node.id, node)
        self._resolving.add((id(scope), node.id))
        try:
            for binding in itertools.takewhile(self._has_steps, found):
                if binding.dotted is not None:
                    yield binding.dotted
                elif binding.value is not None:
                    yield from self._resolve(binding.value, depth + 1)
                elif isinstance(binding.iterates, (ast.Tuple, ast.List)):
                    for element in binding.iterates.elts:
                        yield from self._resolve(element, depth + 1)
        finally:
            self._resolving.discard((id(scope), node.id))
        if not found:
            yield from (f"{star}.{node.id}" for star in self.stars)
            if node.id == "__builtins__":
                yield "builtins"
            elif hasattr(builtins, node.id):
                yield f"builtins.{node.id}"

    def _member_by_key(self, base: ast.expr, key: ast.expr, depth: int) -> Iterator[str]:
        if isinstance(base, (ast.Tuple, ast.List)) and isinstance(key, ast.Constant):
            if isinstance(key.value, int) and -len(base.elts) <= key.value < len(base.elts):
                yield from self._resolve(base.elts[key.value], depth + 1)
            return
        for table in self._tables(base):
            for value in table.values:
                yield from self._resolve(value, depth + 1)
        for owner in self._resolve(base, depth + 1):
            for name in self.strings(key):
                yield from _by_key(owner, name)

    def _tables(self, node: ast.expr) -> Iterator[ast.Dict]:
        """Dictionaries that ``node`` may be: whatever the key, a value of theirs is meant."""
        if isinstance(node, ast.Dict):
            yield node
        elif isinstance(node, ast.Name):
            for binding in self.bindings(node.id, node):
                if isinstance(binding.value, ast.Dict):
                    yield binding.value

    def _resolve_call(self, node: ast.Call, depth: int) -> Iterator[str]:  # noqa: C901 - one row a detour
        for function in self._resolve(node.func, depth + 1):
            if function in _IMPORTERS and node.args:
                yield from self.strings(node.args[0])
            elif function == "builtins.getattr" and len(node.args) > 1:
                for owner in self._resolve(node.args[0], depth + 1):
                    yield from (_member(owner, name) for name in self.strings(node.args[1]))
            elif function == "builtins.vars" and node.args:
                yield from (f"{o}.__dict__" for o in self._resolve(node.args[0], depth + 1))
            elif function in ("builtins.globals", "builtins.locals"):
                yield "<module>.__dict__"
            elif function in ("importlib.reload", "functools.partial") and node.args:
                yield from self._resolve(node.args[0], depth + 1)
            elif function.endswith((".__dict__.get", "sys.modules.get")) and node.args:
                owner = function.removesuffix(".get")
                for name in self.strings(node.args[0]):
                    yield from _by_key(owner, name)
        if isinstance(node.func, ast.Call) and node.args:
            getters = self._resolve(node.func.func, depth + 1)
            if "operator.attrgetter" in getters and node.func.args:
                for owner in self._resolve(node.args[0], depth + 1):
                    yield from (_member(owner, name) for name in self.strings(node.func.args[0]))

    # --- which value an expression has ---------------------------------------------------------

    def strings(self, node: ast.AST) -> tuple[str, ...]:
        """Every text that ``node`` may be."""
        return tuple(value for value in self.values(node) if isinstance(value, str))

    def values(self, node: ast.AST) -> tuple[object, ...]:
        """Every constant (str, bytes, int, float, bool, None, tuple of these) it may be."""
        return tuple(self._asked(node, self._values(node, {}, 0)))

    def _values(  # noqa: C901, PLR0912 - one case a node type
        self, node: ast.AST, local: dict[str, object], depth: int
    ) -> Iterator[object]:
        if not self._goes_on(depth):
            return
        match node:
            case ast.Constant():
                yield node.value
            case ast.Name() if node.id in local:
                yield local[node.id]
            case ast.Name():
                yield from self._values_of_name(node, depth)
            case ast.Tuple() | ast.List():
                for parts in itertools.product(*self._each(node.elts, local, depth)):
                    yield from folded(tuple, parts)
            case ast.BinOp(op=ast.Add()):
                for parts in itertools.product(*self._each(summands(node), local, depth)):
                    yield from folded(added, parts)
            case ast.BinOp():
                compute = BINARY.get(type(node.op))
                if compute is not None:
                    for a, b in itertools.product(
                        *self._each([node.left, node.right], local, depth)
                    ):
                        yield from folded(compute, a, b)
            case ast.JoinedStr():
                for parts in itertools.product(*self._each(node.values, local, depth)):
                    yield from folded(_shown, parts)
            case ast.FormattedValue():
                yield from self._values(node.value, local, depth + 1)
            case ast.Subscript():
                yield from self._values_of_item(node, local, depth)
            case ast.ListComp() | ast.GeneratorExp():
                yield from self._values_of_comprehension(node, local, depth)
            case ast.Call():
                yield from self._values_of_call(node, local, depth)
            case ast.UnaryOp(op=ast.USub()):
                for value in self._values(node.operand, local, depth + 1):
                    if isinstance(value, (int, float)):
                        yield -value

    def _each(
        self, nodes: list[ast.expr], local: dict[str, object], depth: int
    ) -> list[tuple[object, ...]]:
        if len(nodes) > MAX_TERMS:
            return [()]
        return [tuple(itertools.islice(self._values(n, local, depth + 1), 8)) for n in nodes]

    def _values_of_name(self, node: ast.Name, depth: int) -> Iterator[object]:
        key = (id(self.scope_of.get(node, self.tree)), node.id)
        if key in self._resolving:
            return
        self._resolving.add(key)
        try:
            for binding in itertools.takewhile(self._has_steps, self.bindings(node.id, node)):
                if binding.value is not None:
                    yield from self._values(binding.value, {}, depth + 1)
                elif binding.iterates is not None:
                    for values in self._values(binding.iterates, {}, depth + 1):
                        if isinstance(values, (tuple, str)):
                            yield from values
        finally:
            self._resolving.discard(key)

    def _values_of_item(
        self, node: ast.Subscript, local: dict[str, object], depth: int
    ) -> Iterator[object]:
        for table in self._tables(node.value):
            for held in table.values:
                yield from self._values(held, local, depth + 1)
        for value in self._values(node.value, local, depth + 1):
            if not isinstance(value, (str, bytes, tuple)):
                continue
            if isinstance(node.slice, ast.Slice):
                parts = [node.slice.lower, node.slice.upper, node.slice.step]
                bounds = [
                    next(self._values(part, local, depth + 1), None) if part else None
                    for part in parts
                ]
                part = slice(*(b if isinstance(b, int) else None for b in bounds))
                yield from folded(operator.getitem, value, part)
            else:
                for key in self._values(node.slice, local, depth + 1):
                    if isinstance(key, int):
                        yield from folded(operator.getitem, value, key)

    def _values_of_comprehension(
        self, node: ast.ListComp | ast.GeneratorExp, local: dict[str, object], depth: int
    ) -> Iterator[object]:
        generator = node.generators[0]
        if len(node.generators) != 1 or generator.ifs or not isinstance(generator.target, ast.Name):
            return
        for source in self._values(generator.iter, local, depth + 1):
            if not isinstance(source, (tuple, str, bytes)) or len(source) > MAX_TERMS:
                continue
            built: list[object] = []
            for element in source:
                inner = {**local, generator.target.id: element}
                built.extend(itertools.islice(self._values(node.elt, inner, depth + 1), 1))
            yield from folded(tuple, built)

    def _values_of_call(
        self, node: ast.Call, local: dict[str, object], depth: int
    ) -> Iterator[object]:
        arguments = itertools.product(*self._each(node.args, local, depth))
        if isinstance(node.func, ast.Attribute) and node.func.attr in STR_METHODS:
            bases = list(self._values(node.func.value, local, depth + 1))
            for base, given in itertools.product(bases, arguments):
                if isinstance(base, (str, bytes)):
                    yield from folded(method_of_text, node.func.attr, base, *given)
            if bases:
                return
            arguments = itertools.product(*self._each(node.args, local, depth))
        for function in self._resolve(node.func, depth + 1):
            if function == "builtins.map" and len(node.args) == 2:
                yield from self._mapped(node, local, depth)
            elif function in FUNCTIONS_OF_CONSTANTS:
                for given in arguments:
                    yield from folded(FUNCTIONS_OF_CONSTANTS[function], *given)

    def _mapped(self, node: ast.Call, local: dict[str, object], depth: int) -> Iterator[object]:
        for function in self._resolve(node.args[0], depth + 1):
            for source in self._values(node.args[1], local, depth + 1):
                compute = FUNCTIONS_OF_CONSTANTS.get(function)
                if compute is None or not isinstance(source, (tuple, bytes, str)):
                    continue
                if len(source) <= MAX_TERMS:
                    found = [value for element in source for value in folded(compute, element)]
                    yield from folded(tuple, found)


_IMPORTERS = frozenset({"importlib.import_module", "builtins.__import__", "importlib.__import__"})


def _shown(parts: tuple[object, ...]) -> object:
    return added([str(part) for part in parts])


def _member(owner: str, name: str) -> str:
    """``owner.name``, with the detours over ``builtins`` and ``sys.modules`` taken out."""
    return "builtins" if name == "__builtins__" else f"{owner}.{name}"


def _by_key(owner: str, name: str) -> Iterator[str]:
    if owner == "sys.modules":
        yield name
    elif owner.endswith(".__dict__"):
        yield f"{owner.removesuffix('.__dict__')}.{name}"
