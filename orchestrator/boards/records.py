"""What a board is made of; all of it plain data, so that JSON, Markdown and terminal agree."""

from collections.abc import Callable

from orchestrator.boards.states import BoardState
from orchestrator.boards.stats import Interval
from transcripts.records import Entrant, Grade, Record
from transcripts.words import Verdict


class CellScore(Record):
    """A grade's score as read now, with the 95% interval that its timings leave."""

    value: float
    low: float
    high: float
    milliseconds: float | None = None  # geometric mean of the shapes' medians
    roofline: float | None = None  # geometric mean fraction of the roofline: see graders.roofline
    measured: float | None = None  # likewise of the regime's ceiling measured on that GPU

    @property
    def interval(self) -> Interval:
        """The 95% interval of ``value``."""
        return Interval(self.low, self.high)


Scorer = Callable[[Grade], CellScore | None]
"""Scores one grade, None where it holds nothing to score."""


class Listing(Record):
    """One attempt as the board shows it."""

    attempt_id: str
    entrant_digest: str
    task: str
    state: BoardState
    why: str
    detail: str = ""
    excluded: str = ""  # why the board's file does not admit it: visible, unranked
    marks: tuple[str, ...] = ()  # "imported", "unsandboxed", "quick"
    verdict: Verdict = Verdict.UNAUDITED
    score: CellScore | None = None
    in_run: CellScore | None = None
    grade_id: str | None = None
    toolchain_digest: str | None = None  # of the grade
    audit_id: str | None = None
    cost_usd: float | None = None

    @property
    def counts(self) -> bool:
        """True for a valid, admitted attempt."""
        return self.state is BoardState.VALID and not self.excluded


class Chance(Record):
    """How often a cell passes, from more than one decided attempt."""

    attempts: int
    passes: int
    pass_at_1: float
    low: float  # Wilson, 95%
    high: float
    pass_at: tuple[float, ...]  # at k = 1, 2, ..., unbiased
    pass_hat: tuple[float, ...]  # all of k, unbiased


class Cell(Record):
    """One entrant on one task."""

    task: str
    shown: Listing | None  # its best valid attempt, else the one that says most; None: no attempt
    attempts: int  # admitted tries
    valid: int
    normalised: float  # score / the board's best of this task; 0 when not valid
    tied_with: tuple[str, ...] = ()  # labels whose 95% intervals overlap this cell's
    chance: Chance | None = None


class EntrantRow(Record):
    """One entrant's row. ``rank`` is None where nothing admitted has been decided yet."""

    rank: int | None
    label: str  # the name; with 8 digits of the digest where names collide
    entrant: Entrant
    entrant_digest: str
    passes: int
    performance: float
    flagged: int
    audited: int
    cells: tuple[Cell, ...]


class TaskColumn(Record):
    """One task of the board, with the version that is ranked."""

    task: str
    task_digest: str
    scoring_version: int
    best: float | None


class Board(Record):
    """One deck on one hardware."""

    deck: str
    title: str
    name: str | None  # of the board file; None for a default board, which is exploratory
    hardware: str
    canonical: bool
    unit: str  # of the scores: "rubric", "peak_fraction", "speedup"
    columns: tuple[TaskColumn, ...]
    rows: tuple[EntrantRow, ...]
    aside: tuple[Listing, ...]  # every attempt that does not count, with its reason
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def exploratory(self) -> bool:
        """True when no board file pins it."""
        return self.name is None
