"""Kernels in CUDA C++ and PTX source, found by a tokenizer: names, and where their bodies lie.

Comments and strings are skipped, so ``__global__`` in one of them proves nothing. Nothing is
preprocessed: what stands under ``#if 0`` is found too, which does no harm where only names count
that were seen to run.

Where a name is made by the preprocessor (``k_##type``) or by a template of the host language
(``k_HOLE``, see ``HOLE``), the found name holds ``*`` for what is not known. An object-like macro
whose text is ``__global__`` counts as that word.

Standard library only: the worker carries a copy of this file, and the referee imports it.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

HOLE = "HoLe9"
"""What a caller writes in place of text that it does not know; part of an identifier."""

_TOKEN = re.compile(
    r"""(?P<skip>//(?:[^\n\\]|\\.)*|/\*.*?(?:\*/|\Z)|(?:[ \t\r\f\v]|\\\r?\n)+)
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z))
      | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"?|(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?)
      | (?P<name>[A-Za-z_$][\w$]*)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
      | (?P<line>\n)
      | (?P<punct>\#\#|.)""",
    re.VERBOSE | re.DOTALL,
)
_FAR = 400  # tokens from `__global__` to its body
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_NO_NAMES = frozenset({"alignas", "decltype", "noexcept", "requires", "sizeof"})
_ATTRIBUTE = re.compile(r"__\w+__")  # `__launch_bounds__(256)`, `__cluster_dims__(2)`, ...


@dataclass(frozen=True)
class Kernel:
    """One kernel. ``body`` is the span of the text between its braces, None for a declaration."""

    name: str  # no namespace; `*` stands for what only a preprocessor knows
    body: tuple[int, int] | None
    is_ptx: bool = False


@dataclass(frozen=True)
class _Token:
    kind: str  # "name", "number", "string", "line", "punct"
    text: str
    at: int


def kernels(text: str) -> list[Kernel]:
    """All kernels that the text defines or declares, in order."""
    code = _Code(text)
    found = []
    for index, token in enumerate(code.tokens):
        if token.text in code.words and token.kind == "name":
            if kernel := code.kernel(index):
                found.append(kernel)
        elif token.text == "entry" and index and code.tokens[index - 1].text == ".":
            following = [t for t in code.tokens[index + 1 : index + 3] if t.kind == "name"]
            found += [Kernel(name.text, None, is_ptx=True) for name in following[:1]]
    return found


def emptied(text: str) -> tuple[str, list[str]]:
    """The text with the bodies of its kernels taken out, and the names of those kernels."""
    parts, names, at = [], [], 0
    for kernel in kernels(text):
        if kernel.body is not None and kernel.body[0] >= at:
            parts.append(text[at : kernel.body[0]])
            at = kernel.body[1]
            names.append(kernel.name)
    return "".join([*parts, text[at:]]), names


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind == "mark":
            kind = "raw"
        if kind != "skip":
            yield _Token("string" if kind == "raw" else kind, match.group(), match.start())


class _Code:
    """One text as tokens: which bracket closes which, what its macros mean, where kernels are."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.words = {"__global__"}  # and macros that mean it
        self._closing = _pairs(self.tokens)
        self._macros: list[tuple[int, int, frozenset[str]]] = []  # span, parameters
        for index, token in enumerate(self.tokens[:-2]):
            inside = self._macros and index < self._macros[-1][1]
            if token.text == "#" and self.tokens[index + 1].text == "define" and not inside:
                self._define(index + 2)

    def kernel(self, start: int) -> Kernel | None:
        """The kernel whose ``__global__`` is token ``start``: the last name before a `(`."""
        end, holes = self._reach(start)
        index, pieces, name = start + 1, list[str](), ""
        while index < end:
            token = self.tokens[index]
            if token.text == "{" and name:
                return Kernel(name, (token.at + 1, self._at(self._closing[index])))
            if token.text in (";", "{", "}") or token.text in self.words:
                break
            if token.text == "(":
                if pieces and not _is_attribute(pieces):
                    name = "".join(_known(piece, holes) for piece in pieces)
                index = self._closing[index]
            elif token.text == "<":
                if (index := self._angle(index, end)) == end:
                    break
            elif token.kind == "name":
                glued = self.tokens[index - 1].text == "##" and pieces
                pieces = [*pieces, token.text] if glued else [token.text]
            index += 1
        return Kernel(name, None) if name else None

    def _define(self, at: int) -> None:
        tokens = self.tokens
        end = next((n for n in range(at, len(tokens)) if tokens[n].kind == "line"), len(tokens))
        name, parameters = tokens[at], frozenset[str]()
        if tokens[at + 1].text == "(" and tokens[at + 1].at == name.at + len(name.text):
            close = min(self._closing[at + 1], end)
            parameters = frozenset(t.text for t in tokens[at + 2 : close] if t.kind == "name")
        else:
            words = [token.text for token in tokens[at + 1 : end]]
            if not self.words.isdisjoint(words) and "{" not in words:
                self.words.add(name.text)
        self._macros.append((at, end, parameters))

    def _reach(self, start: int) -> tuple[int, frozenset[str]]:
        """How far a kernel that begins at ``start`` can go, and names that stand for others."""
        index = bisect.bisect_right(self._macros, start, key=lambda macro: macro[0]) - 1
        far = min(len(self.tokens), start + _FAR)
        if index >= 0 and start < self._macros[index][1]:
            return min(far, self._macros[index][1]), self._macros[index][2]
        return far, frozenset()

    def _angle(self, start: int, end: int) -> int:
        """Index of the `>` that closes the `<` at ``start``; ``end`` when none does."""
        depth, index = 0, start
        while index < end:
            text = self.tokens[index].text
            if text in (";", "}") or text in self.words:
                break
            depth += (text == "<") - (text == ">")
            if not depth:
                return index
            index = self._closing[index] + 1 if text in _OPEN else index + 1
        return end

    def _at(self, index: int) -> int:
        last = self.tokens[-1]
        return self.tokens[index].at if index < len(self.tokens) else last.at + len(last.text)


def _is_attribute(pieces: list[str]) -> bool:
    return pieces[0] in _NO_NAMES or _ATTRIBUTE.fullmatch(pieces[0]) is not None


def _known(piece: str, holes: frozenset[str]) -> str:
    return "*" if piece in holes else piece.replace(HOLE, "*")


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """For each opening bracket the index of the one that closes it, or one past the end."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in _OPEN:
            opened.append(index)
            pairs[index] = len(tokens)
        elif token.text in _CLOSE and opened:
            pairs[opened.pop()] = index
    return pairs
