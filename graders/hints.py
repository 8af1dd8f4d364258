"""Constants of a submission's source, beside which generated cases put values and sizes.

Read from the text alone, before any worker is started, so that a plan stays frozen: it follows from
its seed, the task and the submission. Numbers in comments and strings count too (CUDA and C sources
are often strings); one too many costs nothing.
"""

import math
import re
from collections import Counter
from pathlib import Path

from graders.launch import submission_files
from graders.reading import size_of

SUFFIXES = frozenset({".py", ".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".ptx"})
MAX_SOURCE_BYTES = 4 << 20
"""Of all files together, the smallest first: what is large is data. A number takes the referee 120
bytes to remember, so that more would be gigabytes and a quarter of a minute."""
MOST = 64
LARGEST, LEAST = 1e30, 1e-30
_NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


def constants(submission: Path) -> tuple[float, ...]:
    """Distinct magnitudes, the rarest first: a threshold stands in one place, a zero in many."""
    found: Counter[float] = Counter()
    sources = [path for _, path in submission_files(submission) if path.suffix in SUFFIXES]
    left = MAX_SOURCE_BYTES
    for path in sorted(sources, key=size_of):
        if (left := left - size_of(path)) >= 0:
            text = path.read_text("utf-8", "replace")
            found.update(_value(match) for match in _NUMBER.findall(text))
    usable = [value for value in found if LEAST <= value <= LARGEST]
    usable.sort(key=lambda value: (found[value], value))
    return tuple(usable[:MOST])


def _value(text: str) -> float:
    try:
        return float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)
    except (OverflowError, ValueError):
        return math.inf
