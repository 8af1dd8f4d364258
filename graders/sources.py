"""The import closure of a submission: its own files that importing the entry would load.

Everything is read from syntax trees; what a submission hides from them (``exec`` of built text) is
for the audit, and the worker's interpreter has no forbidden package to import anyway.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

from graders.entry import Entry
from graders.errors import SubmissionFailed
from graders.launch import submission_files
from graders.reading import MAX_SOURCE_BYTES, parse, sibling_files, size_of
from transcripts.words import GradeResult

LENDINGS = 3  # files that hand a name on, one after the other
MOST_LENT = 500  # names that one file borrows
MAX_NATIVE_BYTES = 2 << 20
_NATIVE = (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".ptx")


@dataclass(frozen=True)
class SourceFile:
    """One file of the closure."""

    path: str  # relative to the submission
    tree: ast.Module
    lent: dict[str, str] = field(default_factory=dict)
    """What other files of the submission lend it: local name -> what it was imported as there."""

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
        owner = ""
        if isinstance(node, ast.Name):
            owner = self.lent.get(node.id) or self.aliases.get(node.id, node.id)
        return ".".join([owner, *reversed(names)])

    @cached_property
    def borrows(self) -> list[tuple[str, str, str]]:
        """Module, name in it (or ``*``), and local name, of each ``from``."""
        found: dict[tuple[str, str, str], None] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                module = "." * bool(node.level) + (node.module or "")
                for name in node.names:
                    found[module, name.name, name.asname or name.name] = None
        return [*found]


def closure(submission: Path, entry: Entry) -> list[SourceFile]:
    """The entry's file and all of the submission that it imports, directly or not.

    Raises SubmissionFailed for a file among them that cannot be read as Python.
    """
    root = submission / entry.file
    waiting, seen = [root], {root}
    found: dict[Path, SourceFile] = {}
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
        found[path] = file
        for module, _ in file.imports():
            for sibling in _siblings(path, root, module):
                if sibling not in seen:
                    seen.add(sibling)
                    waiting.append(sibling)
    for _ in range(LENDINGS):
        for path in found:
            _lend(found, path, root)
    return [*found.values()]


def _lend(files: Mapping[Path, SourceFile], path: Path, root: Path) -> None:
    """Give a file what its siblings have imported, where it takes it from them."""
    file = files[path]
    for module, name, local in file.borrows:
        for sibling in _siblings(path, root, module)[-1:]:
            if len(file.lent) > MOST_LENT or sibling not in files or sibling == path:
                continue
            theirs = files[sibling].lent, files[sibling].aliases
            if name == "*":
                file.lent.update(islice(chain(*(names.items() for names in theirs)), MOST_LENT))
            elif target := theirs[0].get(name) or theirs[1].get(name):
                file.lent[local] = target


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
