"""Find what a submission offers, from its syntax tree alone: nothing of it is executed here.

An entry is a top-level name, or a dotted one (``Cache.append``: a method of a top-level class). It
may be defined, assigned, or imported from another file of the submission.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.spec import EntryPoint, Task

MAX_SOURCE_BYTES = 4 << 20
MAX_DEPTH = 50  # of files that import names from each other


@dataclass(frozen=True)
class Entry:
    """Where the adapter finds its callables. ``file`` is relative to the submission."""

    file: str
    names: Mapping[str, str]  # entry name -> the name as written in the file
    absent: tuple[str, ...] = ()  # optional entries that the file does not offer


def find_entry(task: Task, submission: Path) -> Entry | None:
    """The first file that offers every required entry; the prompt's own file is asked first."""
    for path in _candidates(task, submission):
        names = offered(path)
        found = {
            entry.name: spelled
            for entry in task.interface.entries
            if (spelled := _spelled(entry, names)) is not None
        }
        missing = [e for e in task.interface.entries if e.name not in found]
        if all(entry.optional for entry in missing):
            relative = path.relative_to(submission).as_posix()
            return Entry(relative, found, tuple(entry.name for entry in missing))
    return None


def parse(path: Path) -> ast.Module | None:
    """The syntax tree of a file; None when it is too large or no Python."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return None
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def offered(path: Path) -> set[str]:
    """Top-level names of a file, and ``Class.method`` of its top-level classes."""
    return _offered(path, {}, MAX_DEPTH)


def _offered(path: Path, known: dict[Path, set[str]], depth: int) -> set[str]:
    """Each file is read once, and files that import each other end here too."""
    if path in known or not depth:
        return known.get(path, set())
    names = known[path] = set()
    tree = parse(path)
    if tree is None:
        return names
    for node in _statements(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.ClassDef():
                names |= {node.name, *_methods(node, names)}
            case ast.Assign() | ast.AnnAssign():
                names |= _targets(node)
            case ast.Import() | ast.ImportFrom():
                names |= _imported(node, path, lambda file: _offered(file, known, depth - 1))
    return names


def _candidates(task: Task, submission: Path) -> Iterator[Path]:
    files = [path for path in sorted(submission.rglob("*.py")) if not path.is_symlink()]
    files.sort(key=lambda path: (path.name != task.interface.file, len(path.parts)))
    for path in files:
        if not path.name.startswith("test_") and "__pycache__" not in path.parts and path.is_file():
            yield path


def _spelled(entry: EntryPoint, names: set[str]) -> str | None:
    return next((name for name in (*entry.accepts, entry.name) if name in names), None)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at module level, those under ``if``, ``try`` and ``with`` included."""
    waiting = body[::-1]
    while waiting:  # 1500 `elif` are 1500 deep
        node = waiting.pop()
        yield node
        inner: list[ast.stmt] = []
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                inner += getattr(node, field, [])
        for handler in getattr(node, "handlers", []):
            inner += handler.body
        waiting += reversed(inner)


def _methods(node: ast.ClassDef, names: set[str]) -> Iterator[str]:
    """Its own methods, and those of its bases as far as ``names`` has them."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{node.name}.{item.name}"
    for base in node.bases:
        if isinstance(base, ast.Name):
            for name in sorted(names):
                if name.startswith(f"{base.id}."):
                    yield f"{node.name}.{name.partition('.')[2]}"


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


def _imported(
    node: ast.Import | ast.ImportFrom, path: Path, names_of: Callable[[Path], set[str]]
) -> set[str]:
    theirs: set[str] = set()
    if isinstance(node, ast.ImportFrom) and node.module:
        for sibling in sibling_files(path.parent, node.module):
            theirs |= names_of(sibling)
    names: set[str] = set()
    for alias in node.names:
        if alias.name == "*":
            names |= theirs
            continue
        local = alias.asname or alias.name.partition(".")[0]
        methods = (name for name in theirs if name.startswith(f"{alias.name}."))
        names |= {local, *(f"{local}.{name.partition('.')[2]}" for name in methods)}
    return names


def sibling_files(folder: Path, module: str) -> list[Path]:
    """Files of a submission that ``import module`` would load, seen from ``folder``."""
    base = folder.joinpath(*module.split("."))
    options = (base.with_suffix(".py"), base / "__init__.py")
    return [path for path in options if path.is_file() and not path.is_symlink()]
