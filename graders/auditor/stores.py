"""What outlives a call: globals, attributes, mutable defaults, cells of closures."""

import ast
from typing import TypeGuard

from graders.auditor.labels import default_of
from graders.auditor.links import Links, tail
from graders.auditor.pysource import PySource
from graders.auditor.scopes import Scope
from graders.auditor.trees import walk


class Stores:
    """The outliving stores of one file. ``prefix`` tells them from those of other files."""

    def __init__(self, source: PySource, links: Links, prefix: str) -> None:
        self.source = source
        self._links = links
        self._prefix = prefix
        self._functions = {node.name for node in source.nodes if isinstance(node, ast.FunctionDef)}
        self._globals = self._declared()
        self._outliving = self._names()

    def _names(self) -> frozenset[str]:
        """Names bound at module level, and names that functions declare global."""
        names: set[str] = set()
        for statement in self.source.top_level():
            if isinstance(statement, ast.Assign):
                targets = statement.targets
            elif isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            else:
                continue
            names.update(name.id for t in targets for name in walk(t) if _is_bound(name))
            if isinstance(targets[0], ast.Name) and statement.value is not None:
                self._links.literals[self._prefix + targets[0].id] = statement.value
        for declared in self._globals.values():
            names.update(declared)
        return frozenset(names)

    def _declared(self) -> dict[Scope, set[str]]:
        """What each function declares global."""
        found: dict[Scope, set[str]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.Global):
                scope = self.source.names.scope_of[node]
                found.setdefault(scope, set()).update(node.names)
        return found

    def name(self, node: ast.expr) -> str | None:
        """The outliving store that ``node`` denotes: a global, an attribute, a default, a cell."""
        own = self._own(node)
        return self._prefix + own if own is not None else self._imported(node)

    def _imported(self, node: ast.expr) -> str | None:
        """A module-level name of another file: ``helper.memo``, or ``memo`` imported from it."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        for dotted in self.source.names.resolve(node):
            if tail(dotted) in self._links.literals:
                return tail(dotted)
        return None

    def _own(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            scope = self.source.names.scope_of.get(node)
            if node.id in self._outliving and not self._is_local(node.id, scope):
                return node.id
            return self._enclosing(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in ("self", "cls") or owner in self._functions or owner[:1].isupper():
                return f"{owner}.{node.attr}"
        return None

    def _is_local(self, name: str, scope: Scope | None) -> bool:
        if scope is None or isinstance(scope, ast.Module):
            return False
        bound = self.source.names.bound.get(scope, {})
        return name in bound and name not in self._globals.get(scope, ())

    def _enclosing(self, node: ast.Name) -> str | None:
        """A name of an enclosing function, or a mutable default: both live as long as it does."""
        names = self.source.names
        scope = names.scope_of.get(node)
        if isinstance(scope, (ast.FunctionDef, ast.Lambda)):
            default = default_of(scope, node.id)
            if isinstance(default, (ast.Dict, ast.List, ast.Call)):
                return f"{getattr(scope, 'name', 'lambda')}({node.id})"
            outer = names.parent.get(scope)
            if node.id not in names.bound.get(scope, {}) and isinstance(outer, ast.FunctionDef):
                cells = names.bound.get(outer, {}).get(node.id, [])
                return f"{outer.name}.{node.id}" if any(cell.value for cell in cells) else None
        return None


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def is_memoised(source: PySource, function: ast.FunctionDef) -> bool:
    """True under ``functools.cache`` or ``lru_cache``: the function's results outlive its calls."""
    wanted = {"functools.lru_cache", "functools.cache"}
    for decorator in function.decorator_list:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        if source.names.resolve(node) & wanted:
            return True
    return False
