"""The commands of a shell line, well enough to know which files it opens and writes.

Here-document bodies are data, not commands; quotes are honoured; what is computed at run time
(``$(...)``, variables) is kept as it is written.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "\n", "(", ")", "|&", ";;"})
_REDIRECTS = frozenset({">", ">>", "&>", ">|", "&>>"})


@dataclass(frozen=True)
class Command:
    """One simple command: words, files that its output is sent to, and its here-document."""

    words: tuple[str, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    document: str = ""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


def commands(line: str) -> Iterator[Command]:
    """Simple commands of ``line``. A line that does not lex is split at blanks."""
    text, documents = _without_documents(line)
    found = _Parts()
    words = iter([*_lex(text), ";"])
    for word in words:
        if word in _SEPARATORS:
            if found.words or found.writes:
                document = documents.pop(0) if found.has_document and documents else ""
                yield found.command(document)
            found = _Parts()
        elif word in _REDIRECTS:
            found.writes.append(next(words, ""))
        elif word == "<":
            found.reads.append(next(words, ""))
        elif word.startswith("<<"):
            next(words, "")
            found.has_document = True
        else:
            found.words.append(word)


@dataclass
class _Parts:
    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    has_document: bool = False

    def command(self, document: str) -> Command:
        words = tuple(_program(self.words))
        return Command(words, tuple(self.writes), tuple(self.reads), document)


def _lex(text: str) -> list[str]:
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return text.split()


def _without_documents(line: str) -> tuple[str, list[str]]:
    kept, documents = [], []
    rows = iter(line.split("\n"))
    for row in rows:
        kept.append(row)
        for match in _HEREDOC.finditer(row):
            body = []
            for inner in rows:
                if inner.strip() == match.group(2):
                    break
                body.append(inner)
            documents.append("\n".join(body))
    return "\n".join(kept), documents


_PREFIXES = frozenset(
    {"sudo", "env", "time", "nohup", "exec", "command", "then", "do", "else", "!"}
)


def _program(words: list[str]) -> list[str]:
    """Without assignments and words that only pass a command on."""
    while words and (words[0] in _PREFIXES or re.fullmatch(r"\w+=\S*", words[0])):
        words = words[1:]
    if len(words) > 2 and words[0] == "timeout":
        return words[2:]
    return words
