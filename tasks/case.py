"""A case: one sequence of calls with its inputs, compared with the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Arrays = Mapping[str, "np.ndarray"]

GATED_FROM = 64
"""Elements from which a task's gate holds. In a handful, all may lie near a cancellation, and an
honest result is then far off relative to a reference that happens to be near zero."""


@dataclass(frozen=True)
class Case:
    """What the referee sends and what it expects.

    ``params`` (JSON) goes to the adapter's ``setup``; ``calls`` are the inputs of each ``run``;
    ``expected`` the reference outputs of each, computed by the referee's own copy in fp64 where it
    matters. ``atol``/``rtol``/``rms_ratio`` override the task's. ``item`` names the measured
    rubric item that the case counts for; ``group`` is "nominal", "stress:<name>" or "property".
    A case whose ``relevant`` is set compares only those leaves. ``noise`` is, for a leaf, what one
    more rounding of the inputs makes of it (largest and rms difference): such an error is allowed
    on top, however ill-conditioned the inputs of a generated case are.
    """

    name: str
    group: str
    seed: str
    params: Mapping[str, int | float | str | bool | None]
    calls: Sequence[Arrays]
    expected: Sequence[Arrays]
    item: str | None = None
    atol: float | None = None
    rtol: float | None = None
    rms_ratio: float | None = None
    relevant: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # optional entries without which the case is not measurable
    noise: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reset_between: tuple[int, ...] = field(default=())  # calls before which `setup` runs again
