"""Names that agents give to files: which of them can be kept, and how they are shown."""

import os

DERIVED_FOLDERS = frozenset({"__pycache__", ".git", ".pytest_cache", ".mypy_cache", "node_modules"})
DERIVED_SUFFIXES = (".pyc",)
"""What tools derive is never handed in: bytecode above all, which could differ from its source."""

NAME_BYTES, PATH_BYTES = 255, 1024
"""Of what a snapshot keeps. Kept files lie below other folders later, and PATH_MAX is 4096."""

DERIVED = "made by tools from other files"
UNREADABLE = "it could not be read"

MAX_LINES = 100
"""Of what was left out: an agent makes files faster than anybody reads lines."""

_SHOWN_CHARACTERS = 200


def is_derived(name: str) -> bool:
    """Whether tools make a file or folder of this name, one component, from others."""
    return name in DERIVED_FOLDERS or name.endswith(DERIVED_SUFFIXES)


def why_not_kept(parts: tuple[str, ...]) -> str | None:
    """Why no snapshot holds a file with this path, as the file system gave it; None when it may."""
    raw = [os.fsencode(part) for part in parts]
    try:
        text = b"/".join(raw).decode()
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    if not text.isprintable():
        return "its name has characters that cannot be shown"
    if max(map(len, raw)) > NAME_BYTES or sum(map(len, raw)) + len(raw) > PATH_BYTES:
        return "its path is too long"
    return None


def printable(path: str) -> str:
    """A path for people and logs: one line, of bounded length, that controls no terminal."""
    text = os.fsencode(path).decode(errors="backslashreplace") if _is_encodable(path) else path
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: 2 * _SHOWN_CHARACTERS])
    if len(text) <= _SHOWN_CHARACTERS >= len(shown):
        return shown
    return f"{shown[: _SHOWN_CHARACTERS // 2]}...{len(text)} characters"


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


class LeftOut:
    """Collects what a snapshot does not hold, and why."""

    def __init__(self) -> None:
        self._found: list[tuple[bool, int, tuple[str, ...], str]] = []

    def add(self, parts: tuple[str, ...], reason: str) -> None:
        """Note a file or folder; no parts are the workspace itself."""
        self._found.append((reason == DERIVED, len(parts), parts, reason))

    def lines(self) -> tuple[str, ...]:
        """``path: reason`` for the first, what tools derive last, and how many more there are."""
        first = sorted(self._found)[:MAX_LINES]
        said = [f"{printable('/'.join(parts) or '.')}: {reason}" for *_, parts, reason in first]
        more = len(self._found) - len(first)
        return (*said, f"and {more} more") if more else tuple(said)
