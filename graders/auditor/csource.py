"""C and CUDA source, tokenised: comments, strings and code kept apart.

A tokenizer is enough for what is asked here (which functions are called, which are defined,
which constants stand in their arguments); it follows the phases of the standard: line splices
first, then comments, then tokens.
"""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from graders.auditor.hits import Hit, quotable

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z))
      | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"?)
      | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'?)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
      | (?P<space>\s+)
      | (?P<mark_>.)""",
    re.VERBOSE | re.DOTALL,
)
_LOOKS = re.compile(
    r'#\s*include\s*[<"]|__global__|extern\s+"C"'
    r"|\b(?:void|int|long|float|double|size_t)\s+\**\w+\s*\([^;{}]{0,2000}\)\s*\{"
)
_TYPE_WORDS = frozenset({"return", "else", "do", "case", "sizeof", "if", "while", "for", "switch"})


def looks_like_c(text: str) -> bool:
    """True for text that holds C code, and not for prose about it."""
    return "\n" in text and bool(_LOOKS.search(text))


@dataclass(frozen=True)
class Token:
    """One token; ``line`` counts from 1 in the text that was given."""

    kind: str  # "name", "number", "string", "char", "mark"
    text: str
    line: int


@dataclass(frozen=True)
class CCall:
    """One call: the function's name and the tokens between its parentheses."""

    name: str
    arguments: tuple[Token, ...]
    token: Token
    is_definition: bool
    end: int  # index of the token after the closing parenthesis


MAX_ARGUMENTS = 256
"""Tokens of a call that are kept."""


class CSource:
    """One piece of C: a file, or a string between two lines of a Python file."""

    def __init__(self, path: str, text: str, lines: Sequence[str], span: tuple[int, int]) -> None:
        self.path = path
        self.text = text
        self._lines = lines  # of the whole file
        self._span = span  # first and last line of the piece, 1-based

    @cached_property
    def _scanned(self) -> tuple[list[Token], list[tuple[int, str]]]:
        tokens: list[Token] = []
        comments: list[tuple[int, str]] = []
        spliced, splices = _splice(self.text)
        line = 1
        for match in _TOKEN.finditer(spliced):
            kind, text = str(match.lastgroup), match.group()
            kind = "raw" if kind == "mark" else kind
            at = line + bisect.bisect_left(splices, match.start())
            if kind == "comment":
                comments.append((at, text))
            elif kind != "space":
                names = {"raw": "string", "mark_": "mark"}
                tokens.append(Token(names.get(kind, kind), text, at))
            line += text.count("\n")
        return tokens, comments

    @property
    def tokens(self) -> list[Token]:
        """Code without comments."""
        return self._scanned[0]

    @property
    def comments(self) -> list[tuple[int, str]]:
        """Line (in the file) and text of every comment."""
        return [(self._span[0] + line - 1, text) for line, text in self._scanned[1]]

    @cached_property
    def calls(self) -> list[CCall]:
        """Calls and function definitions, in order; macros' bodies included."""
        return list(self._calls())

    def _calls(self) -> Iterator[CCall]:
        tokens = self.tokens
        closing = _closing(tokens)
        for index, token in enumerate(tokens[:-1]):
            if token.kind != "name" or tokens[index + 1].text != "(":
                continue
            end = closing.get(index + 1, len(tokens))
            after = tokens[end + 1].text if end + 1 < len(tokens) else ""
            before = tokens[index - 1] if index else None
            typed = before is not None and (
                (before.kind == "name" and before.text not in _TYPE_WORDS) or before.text == "*"
            )
            arguments = tuple(tokens[index + 2 : min(end, index + 2 + MAX_ARGUMENTS)])
            yield CCall(token.text, arguments, token, typed and after == "{", end + 1)

    @cached_property
    def names(self) -> frozenset[str]:
        """All identifiers of the code."""
        return frozenset(token.text for token in self.tokens if token.kind == "name")

    def hit(self, token: Token, why: str, **more: object) -> Hit:
        """A hit at ``token``, quoting the line of the file that holds it."""
        first, last = self._span
        guess = min(first + token.line - 1, last)
        near = itertools.chain([guess], range(first, last + 1))
        at = next((n for n in near if token.text in self._lines[n - 1]), guess)
        quote = quotable(self._lines[at - 1])
        return Hit(place=self.path, quote=quote, why=why, lines=(at, at), **more)  # type: ignore[arg-type]


def _splice(text: str) -> tuple[str, list[int]]:
    """Join lines that end in a backslash; returns the offsets at which a line end was dropped."""
    parts, splices, length = [], [], 0
    for part in re.split(r"\\\r?\n", text):
        parts.append(part)
        length += len(part)
        splices.append(length)
    return "".join(parts), splices[:-1]


def _closing(tokens: list[Token]) -> dict[int, int]:
    """For each opening parenthesis the index of the one that closes it."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text == "(":
            opened.append(index)
        elif token.text == ")" and opened:
            pairs[opened.pop()] = index
    return pairs
