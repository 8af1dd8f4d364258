"""Option values that need a check of their own; mistakes say what is allowed."""

import math
from typing import Any

from orchestrator.errors import UserError


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> Any:
    """``value`` when it is allowed. Raises UserError."""
    if value not in allowed:
        raise UserError(f"{option} is one of {', '.join(allowed)}, not `{value}`")
    return value


def positive(option: str, value: float | None) -> float | None:
    """``value`` when it is a finite number above 0, or None. Raises UserError."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise UserError(f"{option} is a number above 0, not `{value}`")
    return value


def positive_or_auto(option: str, value: str) -> int | None:
    """A positive number; None for `auto`. Raises UserError."""
    if value == "auto":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise UserError(f"{option} is a number from 1, or `auto`, not `{value}`")
    return int(value)
