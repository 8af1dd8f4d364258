"""From listings to rows: which attempt a cell shows, what ties with what, and the ranks."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from itertools import chain

from orchestrator.boards.ranking import Merit, merit, normalised, ranks
from orchestrator.boards.records import Cell, Chance, EntrantRow, Listing
from orchestrator.boards.states import BoardState
from orchestrator.boards.stats import pass_at_k, pass_hat_k, wilson
from transcripts.records import Entrant
from transcripts.words import Verdict

# What a cell shows when nothing in it is valid: a flag is never hidden behind a failure.
_SHOWN_FIRST = (
    BoardState.FLAGGED,
    BoardState.UNAUDITED,
    BoardState.FAILED,
    BoardState.NO_SUBMISSION,
    BoardState.UNGRADED,
    BoardState.PENDING,
    BoardState.VALID,  # valid and not admitted
)
_UNDECIDED = frozenset({BoardState.UNGRADED, BoardState.PENDING, BoardState.UNAUDITED})


def rows_of(
    entrants: Mapping[str, Entrant],
    listings: Sequence[Listing],
    best: Mapping[str, float | None],
) -> tuple[EntrantRow, ...]:
    """One row an entrant, ranked; ``best`` is the board's best score of each task."""
    admitted = {one.entrant_digest for one in listings if not one.excluded}
    labels = labels_of(entrants, newcomers=entrants.keys() - admitted)
    tries: dict[str, dict[str, list[Listing]]] = {
        digest: {task: [] for task in best} for digest in entrants
    }
    for one in listings:
        tries[one.entrant_digest][one.task].append(one)
    shown = {
        (digest, task): _shown(tried)
        for digest, own in tries.items()
        for task, tried in own.items()
    }
    rows = []
    for digest, own in tries.items():
        cells = tuple(_cell(task, tried, shown, labels, best[task]) for task, tried in own.items())
        everything = list(chain.from_iterable(own.values()))
        rows.append(_row(labels[digest], entrants[digest], everything, cells))
    places = iter(ranks([Merit(r.passes, r.performance) for r in rows if _is_ranked(r)]))
    placed = [r.model_copy(update={"rank": next(places)}) if _is_ranked(r) else r for r in rows]
    return tuple(sorted(placed, key=lambda r: (r.rank is None, r.rank, r.label, r.entrant_digest)))


def labels_of(entrants: Mapping[str, Entrant], newcomers: Container[str] = ()) -> dict[str, str]:
    """What each entrant is called, by digest: its name; where two share it, with the harness that
    alone has it, else with 8 digits of the digest. ``newcomers`` take no name from the others."""
    settled = Counter(e.name for digest, e in entrants.items() if digest not in newcomers)
    everybody = Counter(e.name for e in entrants.values())
    driven = Counter((e.name, e.harness) for e in entrants.values())
    labels = {}
    for digest, entrant in entrants.items():
        names = everybody if digest in newcomers else settled
        if names[entrant.name] <= 1:
            labels[digest] = entrant.name
        elif driven[entrant.name, entrant.harness] == 1:
            labels[digest] = f"{entrant.name} ({entrant.harness})"
        else:
            labels[digest] = f"{entrant.name}@{digest[:8]}"
    return labels


def _row(
    label: str, entrant: Entrant, own: Sequence[Listing], cells: tuple[Cell, ...]
) -> EntrantRow:
    passes = sum(bool(cell.shown and cell.shown.counts) for cell in cells)
    admitted = [one for one in own if not one.excluded]
    return EntrantRow(
        rank=None,
        label=label,
        entrant=entrant,
        entrant_digest=entrant.digest,
        passes=passes,
        performance=merit([cell.normalised for cell in cells], passes).performance,
        flagged=sum(one.verdict.flagged for one in admitted),
        audited=sum(one.verdict is not Verdict.UNAUDITED for one in admitted),
        cells=cells,
    )


def _is_ranked(row: EntrantRow) -> bool:
    """False while nothing admitted has been decided: infrastructure never counts against it."""
    return any(
        cell.shown and not cell.shown.excluded and _is_decided(cell.shown) for cell in row.cells
    )


def _is_decided(listing: Listing) -> bool:
    return listing.state not in _UNDECIDED


def _shown(listings: Sequence[Listing]) -> Listing | None:
    """The best valid attempt; else the admitted one that says most, the latest among equals."""
    counting = [one for one in listings if one.counts]
    if counting:
        return max(counting, key=lambda one: one.score.value if one.score else 0.0)
    return min(
        reversed(listings),
        key=lambda one: (bool(one.excluded), _SHOWN_FIRST.index(one.state)),
        default=None,
    )


def _cell(
    task: str,
    listings: Sequence[Listing],
    shown: Mapping[tuple[str, str], Listing | None],
    labels: Mapping[str, str],
    best: float | None,
) -> Cell:
    admitted = [one for one in listings if not one.excluded]
    mine = _shown(listings)
    score = mine.score if mine and mine.counts else None
    return Cell(
        task=task,
        shown=mine,
        attempts=len(admitted),
        valid=sum(one.counts for one in admitted),
        normalised=normalised(score.value if score else None, best),
        tied_with=_ties(mine, shown, labels),
        chance=_chance(admitted),
    )


def _ties(
    mine: Listing | None,
    shown: Mapping[tuple[str, str], Listing | None],
    labels: Mapping[str, str],
) -> tuple[str, ...]:
    """Labels of the entrants whose valid cell on this task has an overlapping 95% interval."""
    if mine is None or not mine.counts or mine.score is None:
        return ()
    interval = mine.score.interval
    return tuple(
        sorted(
            labels[digest]
            for (digest, task), other in shown.items()
            if task == mine.task
            and digest != mine.entrant_digest
            and other
            and other.counts
            and other.score
            and other.score.interval.overlaps(interval)
        )
    )


def _chance(admitted: Sequence[Listing]) -> Chance | None:
    decided = [one for one in admitted if _is_decided(one)]
    if len(decided) < 2:
        return None
    attempts, passes = len(decided), sum(one.counts for one in decided)
    low, high = wilson(passes, attempts)
    ks = range(1, attempts + 1)
    return Chance(
        attempts=attempts,
        passes=passes,
        pass_at_1=passes / attempts,
        low=low,
        high=high,
        pass_at=tuple(pass_at_k(attempts, passes, k) for k in ks),
        pass_hat=tuple(pass_hat_k(attempts, passes, k) for k in ks),
    )
