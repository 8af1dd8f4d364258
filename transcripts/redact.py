"""Known secrets are replaced on write, exactly; nothing else is touched.

A detector would mangle hashes, base64 and encrypted reasoning, and with them replay. A secret is
also found where it stands in JSON inside of strings (tool arguments are JSON in a string).
"""

import json
from collections.abc import Mapping
from typing import Any

SHORTEST = 8
"""Shorter values are placeholders (`EMPTY`, `none`), and replacing them would mangle content."""

NESTING = 3
"""How many levels of JSON in strings are looked through: an event, its arguments, one more."""


class Secrets:
    """The values that must not be written, by the name that is written instead."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._forms: list[tuple[str, str]] = []
        for name, value in (values or {}).items():
            if len(value) >= SHORTEST:
                self._add(value, f"[secret {name}]")
        # A secret that contains another one goes first.
        self._forms.sort(key=lambda form: len(form[0]), reverse=True)

    def _add(self, value: str, shown: str) -> None:
        form = value
        for _ in range(1 + NESTING):
            if (form, shown) not in self._forms:
                self._forms.append((form, shown))
            form = json.dumps(form)[1:-1]

    def found_in(self, body: bytes) -> bool:
        """True when serialised JSON holds one of them."""
        return any(form.encode("utf-8", "surrogatepass") in body for form, _ in self._forms)

    def replace(self, value: Any) -> Any:
        """The JSON value with every known secret replaced, in keys too."""
        if isinstance(value, str):
            return self.replace_text(value)
        if isinstance(value, dict):
            return {self.replace_text(key): self.replace(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.replace(item) for item in value]
        return value

    def replace_bytes(self, data: bytes) -> bytes:
        """The bytes of a file with every known secret replaced."""
        for form, shown in self._forms:
            data = data.replace(form.encode("utf-8", "surrogatepass"), shown.encode())
        return data

    def replace_text(self, text: str) -> str:
        """The text with every known secret replaced."""
        for form, shown in self._forms:
            if form in text:
                text = text.replace(form, shown)
        return text
