"""The one way to print: JSON for machines, rich for people, notes on stderr."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Printer:
    """Prints a command's result once, in the form that was asked for."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def emit(self, data: Any, human: Callable[["Console"], None]) -> None:
        """Print ``data`` as one JSON document, or call ``human`` with a console on stdout."""
        if self.as_json:
            print(json.dumps(data, indent=2, ensure_ascii=False, default=str))
        else:
            human(console())

    def note(self, text: str) -> None:
        """Say something on stderr that is not the result (a warning, progress)."""
        print(text, file=sys.stderr)


def console(*, stderr: bool = False) -> "Console":
    """A rich console; wide and plain when it is not a terminal, so that tables never wrap badly."""
    from rich.console import Console  # noqa: PLC0415 - start-up time

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 160, highlight=False)
