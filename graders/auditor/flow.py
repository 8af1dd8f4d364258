"""Where values come from, inside one file: what an expression owes to a call's inputs.

The analysis does not follow the order of statements: a name has the labels of all that is ever
assigned to it. That errs towards suspicion; ``memo`` takes out what is overwritten before it is
returned.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from graders.auditor.callees import Callees
from graders.auditor.labels import (
    IDENTITY,
    LOADERS,
    META,
    NONE,
    POINTER_CALLS,
    POINTERS,
    SAME,
    SAME_NAMES,
    SAVERS,
    SHAPED,
    Function,
    Label,
    Labels,
    Lookup,
    digest_kind,
    is_parameter,
    is_sample,
    key_labels,
    plain,
    shape_of,
)
from graders.auditor.links import Links, module_of
from graders.auditor.pysource import PySource
from graders.auditor.scopes import FUNCTIONS
from graders.auditor.stores import Stores, is_memoised
from graders.auditor.trees import walk

_MAX_PASSES = 6
DISK = "<disk>"
_PUTTERS = frozenset({"append", "add", "setdefault", "insert", "appendleft", "put", "__setitem__"})


@dataclass
class Flow:
    """Labels in one file of a submission."""

    source: PySource
    links: Links
    is_first: bool  # the file that holds the entries

    def __post_init__(self) -> None:
        self._labels: dict[tuple[int, str], set[Label]] = {}
        self._module = module_of(self.source.path)
        self._returns = self.links.returns
        self.stored = self.links.stored
        self._functions = [
            node for node in self.source.nodes if isinstance(node, ast.FunctionDef | ast.Lambda)
        ]
        self._depth = 0
        self.links.add(self._module, self.source.top_level())
        self._callees = Callees(self.source, self.links, self._module)
        self.stores = Stores(self.source, self.links, "" if self.is_first else f"{self._module}.")

    def visit(self) -> None:
        """One pass over the file."""
        for function in self._functions:
            self._visit(function)
        for statement in self.source.top_level():
            if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                self._visit_loose(statement)

    @property
    def size(self) -> int:
        """Labels that are known: passes go on while there are more of them."""
        tables = (self._labels, self._returns, self.stored)
        return sum(len(labels) for table in tables for labels in table.values())

    # --- one function --------------------------------------------------------------------------

    def _visit(self, function: Function) -> None:  # noqa: C901 - one case a node type
        if isinstance(function, ast.Lambda):
            self._returns.setdefault(id(function), set()).update(self.labels(function.body))
            return
        for node in walk(function):
            match node:
                case ast.Assign():
                    labels = self.labels(node.value)
                    for target in node.targets:
                        self._assign(target, labels)
                        if not labels and isinstance(node.value, ast.Call):
                            self._made(target, node.value)
                case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() if node.value is not None:
                    self._assign(node.target, self.labels(node.value))
                case ast.For() | ast.comprehension():
                    self._assign(node.target, self.labels(node.iter))
                case ast.withitem() if node.optional_vars is not None:
                    self._assign(node.optional_vars, self.labels(node.context_expr))
                case ast.Return() if node.value is not None:
                    if self.source.names.scope_of.get(node) is function:
                        self._returns.setdefault(id(function), set()).update(
                            self.labels(node.value)
                        )
                case ast.Call():
                    self._call_effects(node)

    def _visit_loose(self, statement: ast.stmt) -> None:
        """What runs at import has no inputs; what it computes and keeps is ``made``."""
        for node in walk(statement):
            if isinstance(node, ast.Assign) and any(_is_call(p) for p in walk(node.value)):
                for target in node.targets:
                    self._made(target, node.value)

    def _made(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            store = self.stores.name(target.value)
        else:
            kept = isinstance(value, ast.DictComp)
            store = self.stores.name(target) if kept else None
        if store is not None:
            self._put(store, frozenset({"made"}))

    def _assign(self, target: ast.expr, labels: Labels) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assign(part, labels)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, labels)
        elif isinstance(target, ast.Subscript):
            store = self.stores.name(target.value)
            if store is not None:
                self._put(store, labels)
            elif isinstance(target.value, ast.Name):
                self._add(target.value, frozenset(x for x in labels if not isinstance(x, Lookup)))
        else:
            store = self.stores.name(target)
            if store is not None:
                self._put(store, labels)
            elif isinstance(target, ast.Name):
                self._add(target, labels)

    def _add(self, name: ast.Name, labels: Labels) -> None:
        scope = self.source.names.scope_of.get(name)
        self._labels.setdefault((id(scope), name.id), set()).update(labels)

    def _put(self, store: str, labels: Labels) -> None:
        self.stored.setdefault(store, set()).update(labels)

    def _call_effects(self, node: ast.Call) -> None:
        """Containers are filled by methods, arrays by ``out=`` and files by savers."""
        names = self.source.names.resolve(node.func)
        given = [self.labels(argument) for argument in node.args]
        if names & SAVERS or (isinstance(node.func, ast.Attribute) and node.func.attr == "tofile"):
            self._put(DISK, frozenset().union(*given) if given else frozenset({"value"}))
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PUTTERS and given:
            store = self.stores.name(node.func.value)
            if store is not None:
                self._put(store, given[-1])
            elif isinstance(node.func.value, ast.Name):
                self._add(node.func.value, given[-1])
        for keyword in node.keywords:
            if keyword.arg == "out" and isinstance(keyword.value, ast.Name) and given:
                self._add(keyword.value, plain(frozenset().union(*given)))

    # --- one expression ------------------------------------------------------------------------

    def labels(self, node: ast.AST | None) -> Labels:
        """Labels of an expression."""
        if node is None or self._depth > 60:
            return NONE
        self._depth += 1
        try:
            return self._of(node)
        finally:
            self._depth -= 1

    def _of(self, node: ast.AST) -> Labels:  # noqa: C901, PLR0911 - one case a node type
        match node:
            case ast.Name():
                return self._of_name(node)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Subscript():
                return self._of_item(node)
            case ast.Call():
                return self._of_call(node)
            case ast.Tuple() | ast.List() | ast.Set():
                return self._union(node.elts)
            case ast.Dict():
                return self._union([value for value in node.values if value is not None])
            case ast.IfExp():
                return self._union([node.body, node.orelse])
            case ast.BoolOp():
                return self._union(node.values)
            case ast.NamedExpr():
                return self.labels(node.value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self.labels(node.elt)
            case ast.Starred():
                return self.labels(node.value)
            case (
                ast.JoinedStr() | ast.FormattedValue() | ast.BinOp() | ast.UnaryOp() | ast.Compare()
            ):
                return plain(self._union(list(ast.iter_child_nodes(node))))
        return NONE

    def _union(self, nodes: list[ast.expr] | list[ast.AST]) -> Labels:
        return frozenset().union(*(self.labels(node) for node in nodes))

    def _of_name(self, node: ast.Name) -> Labels:
        names = self.source.names
        store = self.stores.name(node)
        if store is not None:
            return frozenset({"state", Lookup(store, frozenset())})
        scope = names.scope_of.get(node)
        while scope is not None:
            found = self._labels.get((id(scope), node.id), set())
            if isinstance(scope, (ast.FunctionDef, ast.Lambda)) and is_parameter(scope, node.id):
                return frozenset({"value", *found})
            if found or node.id in names.bound.get(scope, {}):
                return frozenset(found)
            scope = names.parent.get(scope)
        return NONE

    def _of_attribute(self, node: ast.Attribute) -> Labels:
        store = self.stores.name(node)
        if store is not None:
            return frozenset({"state", Lookup(store, frozenset())})
        base = self.labels(node.value)
        if node.attr in META:
            return shape_of(base)
        if node.attr in POINTERS and "value" in base:
            return frozenset({"pointer"})
        return base

    def _of_item(self, node: ast.Subscript) -> Labels:
        store = self.stores.name(node.value)
        key = self.labels(node.slice)
        if store is not None:
            return frozenset({"state", Lookup(store, key_labels(key))})
        base = self.labels(node.value)
        flat = isinstance(node.value, ast.Attribute) and node.value.attr == "flat"
        if "value" in base and (flat or is_sample(node.slice)):
            return (base - {"value"}) | {"value", "sampled"}
        return base

    def _of_call(self, node: ast.Call) -> Labels:  # noqa: C901, PLR0911 - one row a kind of call
        names = self.source.names.resolve(node.func)
        given = self._union([*node.args, *(k.value for k in node.keywords)])
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        base = self.labels(node.func.value) if isinstance(node.func, ast.Attribute) else NONE
        everything = given | base
        if isinstance(node.func, ast.Attribute) and method in ("get", "pop", "setdefault"):
            store = self.stores.name(node.func.value)
            if store is not None:
                key = self.labels(node.args[0]) if node.args else NONE
                return frozenset({"state", Lookup(store, key_labels(key))})
        if names & LOADERS:
            return frozenset({"state", Lookup(DISK, key_labels(everything))})
        if names & IDENTITY and "value" in given:
            return frozenset({"identity"})
        if method in POINTER_CALLS and "value" in everything:
            return frozenset({"pointer"})
        if names & SHAPED:
            return shape_of(given)
        if everything & {"value", "sampled"}:
            kind = digest_kind(names, method)
            if kind is not None:
                return plain(everything) | {"sampled" if "sampled" in everything else kind}
        local = self._callees.of(node)
        if local is not None:
            return self._of_local(local, given)
        if method in SAME:
            return base | plain(given)
        if names & SAME_NAMES:
            return everything
        return plain(everything)

    def _of_local(self, function: Function, given: Labels) -> Labels:
        returned = frozenset(
            _found_by(label, given) for label in self._returns.get(id(function), set())
        )
        if isinstance(function, ast.FunctionDef) and is_memoised(self.source, function):
            self._put(f"{function.name}()", returned | (given & {"value", "shape"}))
            return returned | {Lookup(f"{function.name}()", key_labels(given))}
        if "value" in returned and "value" not in given:  # its own argument was no live content
            returned = (returned - {"value"}) | (given & {"shape", "pointer", "identity"})
        return returned | (given & {"sampled"})


def _found_by(label: Label, given: Labels) -> Label:
    """``fetch(digest)``: what a function finds by its argument is found by what that was made of.

    A shape among the arguments is no sign: it is given along for many reasons.
    """
    if isinstance(label, Lookup) and not label.keys:
        return Lookup(label.store, key_labels(given) - {"shape", "reduced"})
    return label


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def linked(sources: Sequence[PySource], first: str) -> dict[str, Flow]:
    """The flows of all files by path; what one returns or keeps, the others know."""
    links = Links()
    flows = {source.path: Flow(source, links, source.path == first) for source in sources}
    for _ in range(_MAX_PASSES):
        before = sum(flow.size for flow in flows.values())
        for flow in flows.values():
            flow.visit()
        if sum(flow.size for flow in flows.values()) == before:
            break
    return flows
