"""The import closure of a submission: its own files that importing the entry would load.

Everything is read from syntax trees; what a submission hides from them (``exec`` of built text) is
for the audit, and the worker's interpreter has no forbidden package to import anyway.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graders.entry import Entry
from graders.errors import SubmissionFailed
from graders.launch import submission_files
from graders.reading import MAX_SOURCE_BYTES, parse, sibling_files, size_of
from transcripts.words import GradeResult

MAX_NATIVE_BYTES = 2 << 20
_NATIVE = (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".ptx")


@dataclass(frozen=True)
class SourceFile:
    """One file of the closure."""

    path: str  # relative to the submission
    tree: ast.Module

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Local name -> what it was imported as, e.g. ``np`` -> ``numpy``."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    top = name.name.partition(".")[0]
                    found[name.asname or top] = name.name if name.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    found[name.asname or name.name] = f"{node.module}.{name.name}"
        return found

    def imports(self) -> Iterator[tuple[str, int]]:
        """Dotted modules that it imports, with lines; constant dynamic imports included."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Import():
                    yield from ((name.name, node.lineno) for name in node.names)
                case ast.ImportFrom(module=str(module), level=0):
                    yield module, node.lineno
                case ast.ImportFrom():
                    dots = node.module or ""
                    yield from ((f".{dots or name.name}", node.lineno) for name in node.names)
                case ast.Call(args=[ast.Constant(value=str(name)), *_]) if self.dotted(
                    node.func
                ) in ("__import__", "importlib.import_module"):
                    yield name, node.lineno

    def calls(self) -> Iterator[tuple[str, int]]:
        """Dotted names of what it calls, aliases resolved, with lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and (name := self.dotted(node.func)):
                yield name, node.lineno

    def dotted(self, node: ast.expr) -> str:
        """``numpy.linalg.norm`` for ``np.linalg.norm``; ``.norm`` when its owner is no name."""
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        owner = self.aliases.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([owner, *reversed(names)])


def closure(submission: Path, entry: Entry) -> list[SourceFile]:
    """The entry's file and all of the submission that it imports, directly or not.

    Raises SubmissionFailed for a file among them that cannot be read as Python.
    """
    root = submission / entry.file
    waiting, seen = [root], {root}
    found = []
    left = MAX_SOURCE_BYTES
    while waiting:
        path = waiting.pop(0)
        left -= size_of(path)
        tree = parse(path) if left >= 0 else None
        name = path.relative_to(submission).as_posix()
        if left < 0:
            told = f"more than {MAX_SOURCE_BYTES >> 10} KB of Python, {name} the last of it"
            raise SubmissionFailed(GradeResult.IMPORT, told)
        if tree is None:
            raise SubmissionFailed(GradeResult.IMPORT, f"{name} is no Python that can be parsed")
        file = SourceFile(name, tree)
        found.append(file)
        for module, _ in file.imports():
            for sibling in _siblings(path, root, module):
                if sibling not in seen:
                    seen.add(sibling)
                    waiting.append(sibling)
    return found


def native_texts(submission: Path) -> list[str]:
    """C++, CUDA and PTX files of a submission, as far as ``MAX_NATIVE_BYTES`` go.

    Which of them a build reads is known only to the build; what never runs decides nothing.
    """
    texts, left = [], MAX_NATIVE_BYTES
    for name, path in submission_files(submission):
        if name.endswith(_NATIVE) and (left := left - size_of(path)) >= 0:
            texts.append(path.read_bytes().decode("utf-8", "replace"))
    return texts


def _siblings(path: Path, root: Path, module: str) -> list[Path]:
    folders = [path.parent] if module.startswith(".") else [root.parent]
    names = module.lstrip(".").split(".")
    prefixes = [".".join(names[: n + 1]) for n in range(len(names))]
    return [file for folder in folders for name in prefixes for file in sibling_files(folder, name)]
