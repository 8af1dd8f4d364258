"""An adapter of our own in place of a task's: a worker that returns ready-made outputs.

What a call to it costs is the price of the trip: go, mapping, copying, answer.
"""

from typing import Any

import numpy as np


def setup(_entries: Any, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs of the shapes and dtypes in ``params``."""
    return {name: np.ones(shape, dtype) for name, (shape, dtype) in params.items()}


def run(_entries: Any, state: dict[str, np.ndarray], _inputs: Any) -> dict[str, np.ndarray]:
    """The same outputs each time."""
    return state
