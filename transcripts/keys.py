"""Ids, and names from outside as path segments.

Ids are UUIDv7: they sort by time and never collide across machines, so archives merge as unions.
"""

import re
from pathlib import PurePosixPath

import uuid_utils

SEGMENT_BYTES = 120
"""Longest path segment that ``encode_name`` makes: file systems take 255, callers add suffixes."""

NAME_BYTES, PATH_BYTES = 255, 1024
"""Longest name and path of a file from outside: of PATH_MAX, 4096, the archive needs some."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TOKEN = re.compile(r"%u([0-9a-f]+)-|%([0-9a-f]{2})|_([a-z_])|([a-z0-9.\-+=@,])|%/|%\Z")


def new_id() -> str:
    """A new id; later ids sort after earlier ones."""
    return str(uuid_utils.uuid7())


def is_id(text: str) -> bool:
    """True for the ids that ``new_id`` makes."""
    return _ID.fullmatch(text) is not None


def encode_name(name: str) -> str:
    """Any text as a safe relative path, one segment unless it is very long.

    Only lower-case ASCII, digits and ``. - + = @ ,`` stand for themselves, so names that differ
    only in case stay apart on every file system: an upper-case letter is ``_`` and the lower one,
    ``_`` is ``__``, anything else is ``%2f`` or ``%u6a21-`` (hexadecimal code point). A segment
    that ends with ``%`` goes on in the next one.
    """
    segments, current = [], ""
    for position, character in enumerate(name):
        at_edge = not current or position == len(name) - 1
        token = "%2e" if character == "." and at_edge else _encode(character)
        if len(current) + len(token) >= SEGMENT_BYTES:
            segments.append(current + "%")
            current, token = "", "%2e" if character == "." else token
        current += token
    return "/".join([*segments, current or "%"])


def _encode(character: str) -> str:
    if character == "_":
        return "__"
    if character.isascii() and character.isupper():
        return "_" + character.lower()
    if re.fullmatch(r"[a-z0-9.\-+=@,]", character):
        return character
    point = ord(character)
    return f"%{point:02x}" if point < 0x80 else f"%u{point:x}-"


def decode_name(path: str) -> str:
    """The name that ``encode_name`` encoded.

    Raises:
        ValueError: ``path`` is not an encoded name.
    """
    name, end = [], 0
    for match in _TOKEN.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        name.append(_decode(match))
    if end != len(path):
        raise ValueError(f"not an encoded name: {path!r}")
    return "".join(name)


def _decode(match: re.Match[str]) -> str:
    point, byte, escaped, plain = match.groups()
    if point or byte:
        return chr(int(point or byte, 16))
    if escaped:
        return "_" if escaped == "_" else escaped.upper()
    return plain or ""


def relative_path(text: str) -> PurePosixPath:
    """A path that stays where it belongs.

    Raises:
        ValueError: absolute, empty, leading outside, or more than file systems can hold.
    """
    path = PurePosixPath(text)
    if not text or "\0" in text or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"not a relative path inside the folder: {text!r}")
    sizes = [len(part.encode()) for part in path.parts]  # a lone surrogate is a ValueError too
    if max(sizes) > NAME_BYTES or sum(sizes) + len(sizes) > PATH_BYTES:
        raise ValueError(f"a path too long to be kept: {text[:80]!r}...")
    return path
