"""Who binds which name in a Python module, scope by scope."""

import ast
import itertools
from dataclasses import dataclass, field
from typing import TypeAlias

from graders.auditor.trees import walk

Scope: TypeAlias = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class Binding:
    """One way in which a name gets its value."""

    value: ast.expr | None = None  # assigned from
    iterates: ast.expr | None = None  # an element of
    dotted: str | None = None  # imported as


@dataclass
class Scopes:
    """All bindings of one module."""

    tree: ast.Module
    scope_of: dict[ast.AST, Scope] = field(default_factory=dict)
    parent: dict[Scope, Scope] = field(default_factory=dict)
    bound: dict[Scope, dict[str, list[Binding]]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._scan(self.tree, self.tree)

    def _bind(self, scope: Scope, name: str, binding: Binding) -> None:
        self.bound.setdefault(scope, {}).setdefault(name, []).append(binding)

    def _scan(self, root: ast.AST, outer: Scope) -> None:
        waiting: list[tuple[ast.AST, Scope]] = [(root, outer)]
        while waiting:  # no recursion: a submission picks the depth of its own tree
            node, scope = waiting.pop()
            self.scope_of[node] = scope
            self._bind_node(node, scope)
            inner = scope
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                self.parent[node] = scope
                inner = node
                self.bound.setdefault(inner, {})
            waiting.extend((child, inner) for child in ast.iter_child_nodes(node))

    def _bind_node(  # noqa: C901, PLR0912 - one case a node type
        self, node: ast.AST, scope: Scope
    ) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    self._bind(scope, name, Binding(dotted=alias.name if alias.asname else name))
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(node.module or "")
                    dotted = f"{node.module}.{alias.name}" if node.module else alias.name
                    self._bind(scope, alias.asname or alias.name, Binding(dotted=dotted))
            case ast.Assign():
                for target in node.targets:
                    self._bind_target(target, node.value, scope)
            case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
                if node.value is not None:
                    self._bind_target(node.target, node.value, scope)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._bind_loop(node.target, node.iter, scope)
            case ast.withitem():
                if node.optional_vars is not None:
                    self._bind_target(node.optional_vars, node.context_expr, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(scope, node.name, Binding())
                self._bind_arguments(node.args, node)
            case ast.Lambda():
                self._bind_arguments(node.args, node)
            case ast.ClassDef():
                self._bind(scope, node.name, Binding())

    def _bind_arguments(self, args: ast.arguments, function: Scope) -> None:
        plain = [*args.posonlyargs, *args.args]
        late = len(plain) - len(args.defaults)
        defaults = [None] * late + list(args.defaults) + list(args.kw_defaults)
        for arg, default in zip([*plain, *args.kwonlyargs], defaults, strict=True):
            self._bind(function, arg.arg, Binding(value=default))
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                self._bind(function, extra.arg, Binding())

    def _bind_target(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, Binding(value=value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, (ast.Tuple, ast.List))
            values = value.elts if pairs else []  # type: ignore[attr-defined]
            for one, part in itertools.zip_longest(target.elts, values[: len(target.elts)]):
                if one is None:
                    continue
                if part is not None:
                    self._bind_target(one, part, scope)
                elif isinstance(one, ast.Name):
                    self._bind(scope, one.id, Binding())

    def _bind_loop(self, target: ast.expr, values: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self._bind(scope, target.id, Binding(iterates=values))
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(
            values, (ast.Tuple, ast.List)
        ):
            for row in values.elts:
                self._bind_target(target, row, scope)
        else:
            for part in walk(target):
                if isinstance(part, ast.Name):
                    self._bind(scope, part.id, Binding())

    def bindings(self, name: str, at: ast.AST) -> list[Binding]:
        """How ``name`` may have got its value, seen from ``at``; class bodies hide from methods."""
        scope: Scope | None = self.scope_of.get(at, self.tree)
        first = True
        while scope is not None:
            if first or not isinstance(scope, ast.ClassDef):
                found = self.bound.get(scope, {}).get(name)
                if found:
                    return found
            first = False
            scope = self.parent.get(scope)
        return []
