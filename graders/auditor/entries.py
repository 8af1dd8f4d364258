"""The functions of a file that the grader calls, and where they return."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from graders.auditor.pysource import PySource
from graders.auditor.trees import walk


@dataclass(frozen=True)
class Return:
    """One return statement and how it is reached."""

    node: ast.Return
    function: ast.FunctionDef
    blocks: tuple[tuple[list[ast.stmt], int], ...]  # enclosing blocks, and where in each
    tests: tuple[ast.expr, ...]  # conditions on the way


def entries(source: PySource, names: frozenset[str]) -> Iterator[ast.FunctionDef]:
    """Functions that the grader calls: entries, public methods of entry classes, wrappers."""
    found = False
    for statement in source.top_level():
        if isinstance(statement, ast.FunctionDef) and statement.name in names:
            found = True
            yield statement
            yield from _wrappers(source, statement)
        elif isinstance(statement, ast.ClassDef) and statement.name in names:
            found = True
            for part in statement.body:
                if isinstance(part, ast.FunctionDef) and _is_public(part.name):
                    yield part
        elif isinstance(statement, ast.Assign) and _assigns(statement, names):
            found = True
            yield from _called_in(source, statement.value)
    if not found:
        for statement in source.top_level():
            if isinstance(statement, ast.FunctionDef):
                yield from (p for p in walk(statement) if isinstance(p, ast.FunctionDef))


def offers(source: PySource, names: frozenset[str]) -> bool:
    """True when a file defines an entry itself; of other files every function counts as one."""
    return any(
        getattr(statement, "name", None) in names
        or (isinstance(statement, ast.Assign) and _assigns(statement, names))
        for statement in source.top_level()
    )


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__call__"


def _assigns(statement: ast.Assign, names: frozenset[str]) -> bool:
    return any(isinstance(t, ast.Name) and t.id in names for t in statement.targets)


def _wrappers(source: PySource, function: ast.FunctionDef) -> Iterator[ast.FunctionDef]:
    for decorator in function.decorator_list:
        yield from _called_in(source, decorator)


def _called_in(source: PySource, node: ast.expr) -> Iterator[ast.FunctionDef]:
    """Functions named in an expression, their inner functions, and ``__call__`` of its classes."""
    wanted = {part.id for part in walk(node) if isinstance(part, ast.Name)}
    for statement in source.top_level():
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name in wanted:
            yield from (part for part in walk(statement) if isinstance(part, ast.FunctionDef))


def returns(function: ast.FunctionDef) -> Iterator[Return]:
    """Every return of the function itself, in order of the source."""
    yield from _returns_in(function, function.body, (), ())


def _returns_in(
    function: ast.FunctionDef,
    block: list[ast.stmt],
    blocks: tuple[tuple[list[ast.stmt], int], ...],
    tests: tuple[ast.expr, ...],
) -> Iterator[Return]:
    for index, statement in enumerate(block):
        here = (*blocks, (block, index))
        if isinstance(statement, ast.Return):
            yield Return(statement, function, here, tests)
        inner = (*tests, statement.test) if isinstance(statement, (ast.If, ast.While)) else tests
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            part = getattr(statement, name, None)
            if isinstance(part, list) and part and isinstance(part[0], ast.stmt):
                yield from _returns_in(function, part, here, inner)
        for handler in getattr(statement, "handlers", []):
            yield from _returns_in(function, handler.body, here, inner)
