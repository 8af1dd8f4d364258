"""The one way to print: JSON for machines, rich for people, notes on stderr."""

import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Printer:
    """Prints a command's result once, in the form that was asked for."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def emit(self, data: Any, human: Callable[["Console"], None]) -> None:
        """Print ``data`` as one JSON document, or call ``human`` with a console on stdout."""
        if self.as_json:
            print(json.dumps(data, indent=2, default=str))
        else:
            human(console())

    def note(self, text: str) -> None:
        """Say something on stderr that is not the result (a warning, progress)."""
        print(printable(text), file=sys.stderr)


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls but tab and newline, marks that turn the direction of text, and lone surrogates."""


def printable(text: str) -> str:
    """Text from outside as a terminal may have it: what could steer the terminal is spelled out."""
    return _UNPRINTABLE.sub(lambda found: ascii(found.group())[1:-1], text)


def cell(text: str) -> "Text":
    """A table's cell with text from outside: printable, and never read as markup."""
    from rich.text import Text  # noqa: PLC0415 - start-up time

    return Text(printable(text))


def console(*, stderr: bool = False) -> "Console":
    """A rich console; wide and plain when it is not a terminal, so that tables never wrap badly.

    Strings are printed as they are, without rich's markup, and `printable`: they come from models,
    submissions and logs.
    """
    from rich.console import Console  # noqa: PLC0415 - start-up time

    class Plain(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            shown = [cell(o) if isinstance(o, str) else o for o in objects]
            super().print(*shown, **options)

    stream = sys.stderr if stderr else sys.stdout
    return Plain(stderr=stderr, width=None if stream.isatty() else 160, highlight=False)
