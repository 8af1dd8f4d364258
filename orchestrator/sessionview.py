"""What there is to see of a running sweep: a row a session, and the totals."""

import time
from dataclasses import dataclass, field


@dataclass
class Row:
    """One running session."""

    entrant: str
    task: str
    state: str  # "running", "resumed"
    order: int  # of its start
    step: int = 0
    tool: str = ""
    tokens: int = 0
    cost_usd: float | None = 0.0  # None: unknown
    best_ms: float | None = None
    gpu: str = ""
    moved_at: float = field(default_factory=time.monotonic)  # when it last finished a step


@dataclass(frozen=True)
class View:
    """All that is shown at one moment."""

    rows: tuple[Row, ...]
    now: float  # monotonic
    elapsed_s: float
    done: int
    total: int
    resumable: int  # ended in this run, to be gone on with later
    steps: int
    tokens: int
    cost_usd: float
    unknown_costs: int
    eta_s: float | None
    accounts: tuple[str, ...]
