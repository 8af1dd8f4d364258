"""What may be computed of constants while a source is only being read."""

import ast
import base64
import binascii
import codecs
import zlib
from collections.abc import Callable

MAX_SIZE = 1 << 20
STR_METHODS = frozenset(
    {"join", "replace", "lower", "upper", "strip", "lstrip", "rstrip", "decode", "encode"}
    | {"format", "split", "title", "capitalize", "swapcase", "translate", "hex"}
)
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
    "codecs.decode": codecs.decode,
    "zlib.decompress": lambda value: zlib.decompressobj().decompress(value, MAX_SIZE),
}
BINARY: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Sub: lambda a, b: a - b,  # type: ignore[operator]
    ast.Mult: lambda a, b: a * b if _small(a, b) else None,  # type: ignore[operator]
    ast.Mod: lambda a, b: a % b,  # type: ignore[operator]
    ast.BitXor: lambda a, b: a ^ b,  # type: ignore[operator]
    ast.LShift: lambda a, b: a << b if _small(a, b) and b < 64 else None,  # type: ignore[operator]
    ast.Pow: lambda a, b: a**b if _small(a, b) and _small(b, 64) and b < 64 else None,  # type: ignore[operator]
    ast.FloorDiv: lambda a, b: a // b,  # type: ignore[operator]
}


def _small(a: object, b: object) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return max(abs(a), abs(b)) < 1 << 32
    text, count = (a, b) if isinstance(b, int) else (b, a)
    return isinstance(text, (str, bytes)) and isinstance(count, int) and count * len(text) < 4096


def summands(node: ast.expr) -> list[ast.expr]:
    """The terms of ``a + b + c``, left to right, however many there are."""
    terms: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]
