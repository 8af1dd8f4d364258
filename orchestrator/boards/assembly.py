"""From evidence to boards: pure functions, the same evidence in any order gives equal boards."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.boards.boardfile import BoardFile, exclusions
from orchestrator.boards.conditions import entrant_differences
from orchestrator.boards.evidence import (
    AttemptEvidence,
    Standing,
    TaskVersion,
    Terms,
    hardware_of,
    stand,
)
from orchestrator.boards.records import Board, EntrantRow, Listing, Scorer, TaskColumn
from orchestrator.boards.rows import rows_of
from tasks.spec import Deck
from transcripts.words import Verdict


def default_boards(
    deck: Deck,
    tasks: Mapping[str, TaskVersion],
    evidence: Sequence[AttemptEvidence],
    scorer: Scorer,
) -> list[Board]:
    """One exploratory board per hardware that the evidence has regrades of, canonical first."""
    keys = hardware_of(evidence) or [deck.canonical_hardware]
    ordered = sorted(keys, key=lambda key: (not is_canonical(deck, key), key))
    return [assemble(deck, Terms(key, tasks), evidence, scorer) for key in ordered]


def is_canonical(deck: Deck, hardware: str) -> bool:
    """True for the deck's canonical hardware; "cpu" stands for every ``cpu:<model>``."""
    canonical = deck.canonical_hardware
    return hardware == canonical or (canonical == "cpu" and hardware.startswith("cpu:"))


def assemble(
    deck: Deck,
    terms: Terms,
    evidence: Sequence[AttemptEvidence],
    scorer: Scorer,
    board_file: BoardFile | None = None,
) -> Board:
    """The board of ``evidence`` under ``terms``; ``board_file`` says what it admits."""
    names = [cell.task for cell in deck.cells]
    relevant = sorted(
        (one for one in evidence if one.attempt.cell.task in names),
        key=lambda one: one.attempt.attempt_id,
    )
    excluded = exclusions(board_file, terms, relevant)
    standings = [stand(one, terms) for one in relevant]
    listings = [
        _listing(one, excluded.get(one.attempt.attempt_id, ""), scorer) for one in standings
    ]
    best = {name: _best(listings, name) for name in names}
    entrants = {one.attempt.entrant.digest: one.attempt.entrant for one in standings}
    rows = rows_of(entrants, listings, best)
    return Board(
        deck=deck.name,
        title=deck.title,
        name=board_file.name if board_file else None,
        hardware=terms.hardware,
        canonical=is_canonical(deck, terms.hardware),
        unit=deck.score,
        columns=tuple(_column(name, terms, best) for name in names),
        rows=rows,
        aside=_aside(listings, rows, names),
        notes=tuple(_notes(rows)),
        problems=tuple(
            f"attempt {one.attempt.attempt_id}: {text}"
            for one in standings
            for text in one.problems
        ),
    )


def _aside(
    listings: Sequence[Listing], rows: Sequence[EntrantRow], tasks: Sequence[str]
) -> tuple[Listing, ...]:
    """What does not count, in the order of the rows and tasks."""
    places = {row.entrant_digest: place for place, row in enumerate(rows)}
    return tuple(
        sorted(
            (one for one in listings if not one.counts),
            key=lambda one: (places[one.entrant_digest], tasks.index(one.task), one.attempt_id),
        )
    )


def _column(name: str, terms: Terms, best: Mapping[str, float | None]) -> TaskColumn:
    version = terms.tasks[name]
    return TaskColumn(
        task=name,
        task_digest=version.digest,
        scoring_version=version.scoring_version,
        best=best[name],
    )


def _listing(standing: Standing, excluded: str, scorer: Scorer) -> Listing:
    attempt, grade, audit = standing.attempt, standing.grade, standing.audit
    return Listing(
        attempt_id=attempt.attempt_id,
        entrant_digest=attempt.entrant.digest,
        task=attempt.cell.task,
        state=standing.state,
        why=standing.why,
        detail=standing.detail,
        excluded=excluded,
        marks=tuple(_marks(standing)),
        verdict=audit.verdict if audit else Verdict.UNAUDITED,
        score=scorer(grade) if grade else None,
        in_run=scorer(standing.in_run) if standing.in_run else None,
        grade_id=grade.grade_id if grade else None,
        toolchain_digest=grade.toolchain_digest if grade else None,
        audit_id=audit.audit_id if audit else None,
        cost_usd=attempt.cost_usd,
    )


def _marks(standing: Standing) -> Iterator[str]:
    grade = standing.grade
    if standing.attempt.origin == "imported":
        yield "imported"
    if standing.attempt.unsandboxed or (grade and grade.isolation == "process"):
        yield "unsandboxed"
    if grade and grade.tier == "quick":
        yield "quick"


def _best(listings: Sequence[Listing], task: str) -> float | None:
    scores = [one.score.value for one in listings if one.counts and one.task == task and one.score]
    return max(scores, default=None)


def _notes(rows: Sequence[EntrantRow]) -> Iterator[str]:
    counts = sorted({c.attempts for row in rows if row.rank for c in row.cells if c.attempts})
    if len(counts) > 1:
        yield (
            f"attempts per cell differ ({counts[0]} to {counts[-1]}): best-of-N is compared at "
            "equal N only; `attempts` in a board file pins it"
        )
    for name in sorted({row.entrant.name for row in rows if row.label != row.entrant.name}):
        same = [row for row in rows if row.entrant.name == name]
        yield from (
            f"{name}: {text}"
            for text in entrant_differences({row.label: row.entrant for row in same})
        )
