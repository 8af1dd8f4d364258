"""The commands of a shell line, well enough to know which files it opens and writes.

Here-document bodies are data, not commands; quotes are honoured; what is computed at run time
(``$(...)``, variables) is kept as it is written.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

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
    words: list[str] = []
    writes: list[str] = []
    reads: list[str] = []
    tokens = _lex(text)
    index = 0
    while index <= len(tokens):
        token = tokens[index] if index < len(tokens) else ";"
        if token in _SEPARATORS:
            if words or writes:
                document = documents.pop(0) if "<<" in reads and documents else ""
                plain = tuple(read for read in reads if read != "<<")
                yield Command(tuple(_program(words)), tuple(writes), plain, document)
            words, writes, reads = [], [], []
        elif token in _REDIRECTS and index + 1 < len(tokens):
            index += 1
            writes.append(tokens[index])
        elif token == "<" and index + 1 < len(tokens):
            index += 1
            reads.append(tokens[index])
        elif token.startswith("<<"):
            index += 1
            reads.append("<<")
        else:
            words.append(token)
        index += 1


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
