"""Which names the files of a submission offer, from their syntax trees alone.

A name is a top-level one, or ``Class.method`` of a top-level class. It may be defined, assigned, or
imported from another file of the submission. Each file is read once, and each name of a file is
followed once, however the files import each other.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from graders.reading import MAX_SOURCE_BYTES, parse, sibling_files, size_of

MAX_STEPS = 20_000  # names of files that are looked at for one answer


@dataclass
class _File:
    """What one file says of its names."""

    names: set[str] = field(default_factory=set)  # methods of its own classes among them
    bases: dict[str, list[str]] = field(default_factory=dict)  # class -> its bases
    imported: dict[str, list[tuple[Path, str]]] = field(default_factory=dict)  # classes, perhaps
    stars: dict[Path, None] = field(default_factory=dict)

    def leads(self, path: Path, name: str) -> Iterator[tuple[Path, str]]:
        """Where else a name of this file, ``path``, may come from."""
        yield from ((sibling, name) for sibling in self.stars)
        owner, dot, method = name.partition(".")
        if dot:
            yield from ((path, f"{base}.{method}") for base in self.bases.get(owner, ()))
            for sibling, original in self.imported.get(owner, ()):
                yield sibling, f"{original}.{method}"


class Offers:
    """The files of one submission, read as they are asked for, within one bound for all."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}
        self._left = MAX_SOURCE_BYTES
        self._without: set[tuple[Path, str]] = set()  # followed before, in vain

    def has(self, path: Path, name: str) -> bool:
        """True when ``path`` offers ``name``."""
        waiting = [(path, name)]
        seen = set(waiting)
        while waiting and len(seen) <= MAX_STEPS:
            at, sought = waiting.pop()
            file = self._file(at)
            if sought in file.names:
                return True
            leads = dict.fromkeys(file.leads(at, sought))
            new = [lead for lead in leads if lead not in seen and lead not in self._without]
            seen.update(new)
            waiting += new
        self._without |= seen
        return False

    def _file(self, path: Path) -> _File:
        if path not in self._files:
            self._left -= size_of(path)
            tree = parse(path) if self._left >= 0 else None
            self._files[path] = _File() if tree is None else _read(tree, path)
        return self._files[path]


def _read(tree: ast.Module, path: Path) -> _File:
    file = _File()
    for node in _statements(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                file.names.add(node.name)
            case ast.ClassDef():
                file.names |= {node.name, *_methods(node)}
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                file.bases.setdefault(node.name, []).extend(bases)
            case ast.Assign() | ast.AnnAssign():
                file.names |= _targets(node)
            case ast.Import() | ast.ImportFrom():
                _import(node, path, file)
    return file


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at module level, those under ``if``, ``try`` and ``with`` included."""
    waiting = body[::-1]
    while waiting:  # 1500 `elif` are 1500 deep
        node = waiting.pop()
        yield node
        inner: list[ast.stmt] = []
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field_ in ("body", "orelse", "finalbody"):
                inner += getattr(node, field_, [])
        for handler in getattr(node, "handlers", []):
            inner += handler.body
        waiting += reversed(inner)


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{node.name}.{item.name}"


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


def _import(node: ast.Import | ast.ImportFrom, path: Path, file: _File) -> None:
    siblings: list[Path] = []
    if isinstance(node, ast.ImportFrom) and node.module:
        siblings = sibling_files(path.parent, node.module)
    for alias in node.names:
        if alias.name == "*":
            file.stars.update(dict.fromkeys(siblings))
            continue
        local = alias.asname or alias.name.partition(".")[0]
        file.names.add(local)
        leads = [(sibling, alias.name) for sibling in siblings]
        file.imported.setdefault(local, []).extend(leads)
