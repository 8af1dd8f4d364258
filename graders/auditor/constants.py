"""What may be computed of constants while a source is only being read."""

import ast
import base64
import binascii
import codecs
import functools
import operator
import re
import zlib
from collections.abc import Callable, Sequence

from graders.auditor.trees import charge

MAX_SIZE = 1 << 18
"""Characters and bytes of a folded value, with those of its elements."""
MAX_TERMS = 4096
STR_METHODS = frozenset(
    {"join", "replace", "lower", "upper", "strip", "lstrip", "rstrip", "decode", "encode"}
    | {"format", "split", "title", "capitalize", "swapcase", "hex"}
)
_ENCODINGS = frozenset(
    {"utf-8", "utf8", "utf_8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "cp1252"}
    | {"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "rot13", "rot_13", "rot-13", "hex"}
    | {"base64", "base-64", "unicode_escape", "unicode-escape", "raw_unicode_escape"}
)
"""None of them makes much of little, as ``zip`` and ``bz2`` do, or takes long, as ``idna`` does."""
_UNDEFINED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError)
"""What computing a constant may raise, decoding included; such an expression has no value."""


def folded(function: Callable[..., object], *operands: object) -> tuple[object, ...]:
    """The value of ``function(*operands)`` where there is one and it is small, else nothing."""
    try:
        value = function(*operands)
    except (*_UNDEFINED, zlib.error):
        return ()
    weight = _weight(value)
    charge(weight // 64)
    return (value,) if weight <= MAX_SIZE else ()


def _weight(value: object) -> int:
    """What it costs to look at a value. Elements were small before they became elements."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, tuple):
        total = 0
        for part in value:
            total += 1 + _weight(part)
            if total > MAX_SIZE:
                break
        return total
    return value.bit_length() if isinstance(value, int) else 1


def _decoded(value: bytes | str, encoding: str = "utf-8", *_: object) -> object:
    if encoding.lower() not in _ENCODINGS:
        raise LookupError(encoding)
    return codecs.decode(value, encoding)  # type: ignore[arg-type]


FUNCTIONS_OF_CONSTANTS: dict[str, Callable[..., object]] = {
    "builtins.chr": chr,
    "builtins.str": str,
    "builtins.bytes": lambda value: bytes(value) if isinstance(value, tuple) else b"",
    "builtins.bytearray": lambda value: bytes(value) if isinstance(value, tuple) else b"",
    "builtins.bytes.fromhex": bytes.fromhex,
    "builtins.reversed": lambda value: value[::-1],
    "builtins.tuple": tuple,
    "builtins.list": tuple,
    "builtins.int": int,
    "base64.b64decode": base64.b64decode,
    "base64.b32decode": base64.b32decode,
    "base64.b16decode": base64.b16decode,
    "base64.b85decode": base64.b85decode,
    "binascii.unhexlify": binascii.unhexlify,
    "codecs.decode": _decoded,
    "zlib.decompress": lambda value: zlib.decompressobj().decompress(value, MAX_SIZE),
}
BINARY: dict[type[ast.operator], Callable[..., object]] = {
    ast.Sub: operator.sub,
    ast.Mult: lambda a, b: a * b if _small(a, b) else None,
    ast.Mod: lambda a, b: a % b if _is_plain_format(a) else None,
    ast.BitXor: operator.xor,
    ast.LShift: lambda a, b: a << b if _small(a, b) and b < 64 else None,
    ast.Pow: lambda a, b: a**b if _small(a, b) and _small(b, 64) and b < 64 else None,
    ast.FloorDiv: operator.floordiv,
}


def method_of_text(name: str, base: str | bytes, *given: object) -> object:
    """``base.name(*given)``, unless what comes out may be much larger than what goes in."""
    if name in ("decode", "encode") and given and str(given[0]).lower() not in _ENCODINGS:
        raise LookupError(name)
    if name == "format" and not _is_plain_format(base, fields=True):
        raise ValueError(name)
    if name in ("replace", "join"):
        parts = [part for one in given for part in (one if isinstance(one, tuple) else (one,))]
        sizes = sum(len(part) for part in parts if isinstance(part, (str, bytes)))
        if (len(base) + 1) * (len(parts) + sizes) > MAX_SIZE * 4:
            raise ValueError(name)
    result = getattr(base, name)(*given)
    return tuple(result) if isinstance(result, list) else result


def _is_plain_format(value: object, *, fields: bool = False) -> bool:
    """False for a text whose formatting may widen it a thousandfold."""
    if not isinstance(value, (str, bytes)):
        return True
    text = value if isinstance(value, str) else value.decode("latin-1")
    if len(text) > MAX_TERMS or re.search(r"\d{4}", text):
        return False
    return "{" not in "".join(re.findall(r"\{[^}]*?:([^}]*)", text)) if fields else "*" not in text


def _small(a: object, b: object) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return max(abs(a), abs(b)) < 1 << 32
    text, count = (a, b) if isinstance(b, int) else (b, a)
    return isinstance(text, (str, bytes)) and isinstance(count, int) and count * len(text) < 4096


def added(parts: Sequence[object]) -> object:
    """The sum of texts, tuples or numbers. Raises ValueError where it is large."""
    sized = [len(part) for part in parts if isinstance(part, (str, bytes, tuple))]
    if sum(sized) > MAX_SIZE or len(parts) > MAX_TERMS:
        raise ValueError("large")
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)  # type: ignore[arg-type]
    return functools.reduce(operator.add, parts)


def summands(node: ast.expr) -> list[ast.expr]:
    """The terms of ``a + b + c``, left to right, however many there are."""
    terms: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]
