"""The import closure of a submission: which files run, and which of their definitions."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath

from graders.auditor.csource import CSource, looks_like_c
from graders.auditor.flow import Flow, linked
from graders.auditor.pysource import MAX_NODES, PySource
from graders.auditor.trees import walk
from tasks.spec import Task

IMPLICIT = ("conftest.py", "sitecustomize.py", "usercustomize.py", "__init__.py")
"""Files that an interpreter or a test runner loads without being asked."""
PYTHON_SUFFIXES = (".py", ".pyw")
C_SUFFIXES = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".cu", ".cuh")

MAX_SOURCE_BYTES = 1 << 20
MAX_C_BYTES = 1 << 19


class Closure:
    """Parsed sources. ``opaque`` names code that could not be read as source, and why."""

    def __init__(self, task: Task, files: Mapping[str, bytes], entry: str | None) -> None:
        self._entry = entry or task.interface.file
        self.files = files
        self.opaque: dict[str, str] = {}
        self.parsed = self._parse_all()
        self.python = self._reachable()
        self.entries = frozenset(
            name.split(".")[0] for entry in task.interface.entries for name in entry.accepts
        )
        self._mark_live()

    def _parse_all(self) -> dict[str, PySource]:
        parsed = {}
        nodes = 0
        python = [path for path in self.files if path.endswith(PYTHON_SUFFIXES)]
        for path in sorted(python, key=lambda path: (path != self._entry, path)):
            if len(self.files[path]) > MAX_SOURCE_BYTES or nodes > MAX_NODES:
                self.opaque[path] = "is too large to be followed"
                continue
            try:
                parsed[path] = PySource(path, self.files[path])
                nodes += parsed[path].size
            except Exception as error:  # noqa: BLE001 - a submission must not pick what we survive
                self.opaque[path] = f"does not parse ({type(error).__name__})"
        return {path: parsed[path] for path in self.files if path in parsed}

    # --- which files ---------------------------------------------------------------------------

    def _reachable(self) -> list[PySource]:
        first = self._entry
        known = [*self.parsed, *self.opaque]
        waiting = [path for path in known if path == first or _name(path) in IMPLICIT]
        if first not in self.parsed:
            waiting = known
        reached: set[str] = set()
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                if path in self.parsed:
                    waiting.extend(self._mentioned(self.parsed[path]))
        self._unread = sorted(reached & self.opaque.keys())
        return [self.parsed[path] for path in self.parsed if path in reached]

    def _mentioned(self, source: PySource) -> Iterator[str]:
        """Own files that ``source`` imports, or names in a string that it could load them by."""
        words = {part for name in _imported(source.tree) for part in name.split(".")}
        words |= {PurePosixPath(text).stem for text in _short_strings(source.tree)}
        known = (*self.parsed, *self.opaque)
        yield from (path for path in known if PurePosixPath(path).stem in words)

    # --- which definitions ---------------------------------------------------------------------

    def _mark_live(self) -> None:
        defined = {
            statement.name: statement
            for source in self.python
            for statement in source.tree.body
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        if not self.entries & defined.keys() and not self._assigned_entries():
            return
        live = {name for name in self.entries if name in defined}
        loose = [s for source in self.python for s in _loose(source)]
        waiting: list[ast.AST] = [*loose, *(defined[name] for name in live)]
        while waiting:
            node = waiting.pop()
            for name in _words(node):
                if name in defined and name not in live:
                    live.add(name)
                    waiting.append(defined[name])
        for source in self.python:
            source.live = frozenset(live)

    def _assigned_entries(self) -> bool:
        return any(
            self.entries & source.names.bound.get(source.tree, {}).keys() for source in self.python
        )

    # --- where values come from ----------------------------------------------------------------

    @cached_property
    def _flows(self) -> dict[str, Flow]:
        return linked(self.python, self._entry)

    def flow(self, source: PySource) -> Flow:
        """The labels of a file of the closure, worked out once for all checks that ask."""
        return self._flows[source.path]

    # --- C -------------------------------------------------------------------------------------

    @cached_property
    def c(self) -> list[CSource]:
        """C in files of its own and in strings of the live Python."""
        found = []
        for path, data in self.files.items():
            if path.endswith(C_SUFFIXES) and len(data) <= MAX_C_BYTES:
                text = data.decode("utf-8", "surrogateescape")
                lines = text.split("\n")
                found.append(CSource(path, text, lines, (1, len(lines))))
        for source in self.python:
            for node, text in source.texts:
                if looks_like_c(text):
                    span = (node.lineno, node.end_lineno or node.lineno)
                    found.append(CSource(source.path, text, source.lines, span))
        return found

    @property
    def unread(self) -> list[str]:
        """Code that may run and was not followed to its end, and why."""
        large = [
            f"{path} is too large to be followed"
            for path, data in self.files.items()
            if path.endswith(C_SUFFIXES) and len(data) > MAX_C_BYTES
        ]
        intricate = [
            f"{source.path}:{source.names.given_up[0]} is too intricate to be followed"
            for source in self.python
            if source.names.given_up
        ]
        return [*(f"{path} {self.opaque[path]}" for path in self._unread), *large, *intricate]

    @cached_property
    def binaries(self) -> list[str]:
        """Files that are neither source nor text: what they do cannot be read."""
        return [path for path, data in self.files.items() if b"\0" in data[:8192]]


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
            yield node.module or ""


def _short_strings(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield node.value


def _loose(source: PySource) -> Iterator[ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    yield from (s for s in source.top_level() if not isinstance(s, kinds))


def _words(node: ast.AST) -> Iterator[str]:
    """Every identifier, attribute and short string under ``node``: any may call a definition."""
    for part in walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.alias):
            yield part.name
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
