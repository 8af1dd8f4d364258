"""Board files: what a published board pins, so that new work never changes it by itself.

::

    name = "rounds-2026-05"
    deck = "rounds"
    hardware = "cpu:AMD EPYC 9654"
    until = 2026-05-31T00:00:00Z     # later attempts, grades and audits do not count
    attempts = 1                     # the first k of each cell: best-of-N at equal N only
    ends = ["submitted"]             # how a session may have ended
    network = ["none"]               # network policies admitted

    [tasks.kv-cache]                 # one a task of the deck
    digest = "9f86d081884c7d65..."
    scoring_version = 1

    [budget]                         # caps that every entrant had; no table: any
    max_steps = 100

    [[holds]]
    attempt = "0198c0de"             # an attempt's id, or the start of one
    reason = "two readers disagree on the cache; see note 3"

What a file does not admit stays visible, unranked.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from pathlib import Path

from pydantic import AwareDatetime, Field

from orchestrator.boards.evidence import AttemptEvidence, TaskVersion, Terms
from orchestrator.errors import UserError
from tasks.declaration import read_model
from tasks.errors import BrokenTask
from tasks.spec import Deck, TaskPart
from transcripts.records import Attempt, Budget
from transcripts.words import End


class BadBoardFile(UserError):
    """A board file that cannot be used: says file, line, field and mend."""


class PinnedTask(TaskPart):
    """The version of one task that the board ranks."""

    digest: str = Field(min_length=8)
    scoring_version: int


class Hold(TaskPart):
    """One attempt kept off the board by a person, with the reason that the board prints."""

    attempt: str = Field(min_length=8)
    reason: str = Field(min_length=1)


class BoardFile(TaskPart):
    """A board file as read."""

    name: str
    deck: str
    hardware: str
    until: AwareDatetime
    attempts: int = Field(ge=1)
    ends: tuple[End, ...]
    network: tuple[str, ...]
    tasks: dict[str, PinnedTask]
    budget: Budget | None = None
    holds: tuple[Hold, ...] = ()

    @property
    def terms(self) -> Terms:
        """What grades and audits must match."""
        versions = {
            task: TaskVersion(pin.digest, pin.scoring_version) for task, pin in self.tasks.items()
        }
        return Terms(hardware=self.hardware, tasks=versions, until=self.until)


def load_board_file(path: Path, deck: Deck) -> BoardFile:
    """Read a board file of ``deck``. Raises BadBoardFile with one line a problem."""
    try:
        board_file = read_model(path, BoardFile)
    except BrokenTask as error:
        raise BadBoardFile(str(error)) from error
    names = [cell.task for cell in deck.cells]
    problems = [
        *_wrong_deck(board_file, deck),
        *(
            f"tasks.{name}: {_unknown(name, names)}"
            for name in board_file.tasks
            if name not in names
        ),
        *(
            f"tasks: `{name}` is not pinned; add [tasks.{name}]"
            for name in names
            if name not in board_file.tasks
        ),
    ]
    if problems:
        raise BadBoardFile("\n".join(f"{path}: {problem}" for problem in problems))
    return board_file


def check_pins(
    path: Path,
    board_file: BoardFile,
    installed: Mapping[str, TaskVersion],
    hardware: Sequence[str],
) -> None:
    """Refuse pins that cannot be honoured: scores of other versions would be guesses.

    Raises BadBoardFile.
    """
    for name, pin in board_file.tasks.items():
        have = installed[name]
        if not have.digest.startswith(pin.digest) or have.scoring_version != pin.scoring_version:
            raise BadBoardFile(
                f"{path}: tasks.{name}: pins {pin.digest[:12]} with scoring version "
                f"{pin.scoring_version}; this product has {have.digest[:12]} with "
                f"{have.scoring_version}: use the product version that made the board, or pin anew"
            )
    if hardware and board_file.hardware not in hardware:
        near = difflib.get_close_matches(board_file.hardware, hardware, n=1, cutoff=0.3) or hardware
        raise BadBoardFile(
            f"{path}: hardware: nothing in the archive was graded on `{board_file.hardware}`; "
            f"did you mean `{near[0]}`?"
        )


def exclusions(
    board_file: BoardFile | None, terms: Terms, attempts: Sequence[AttemptEvidence]
) -> Mapping[str, str]:
    """Why attempts are not admitted, by attempt id; an admitted one has no entry."""
    reasons: dict[str, str] = {}
    places: dict[str, int] = {}
    for one in sorted(attempts, key=lambda e: e.attempt.attempt_id):
        attempt = one.attempt
        place = places.get(attempt.cell.id, 0)
        if _is_a_try(one):
            places[attempt.cell.id] = place + 1
        reason = next(iter(_reasons(board_file, terms, attempt, place)), None)
        if reason:
            reasons[attempt.attempt_id] = reason
    return reasons


def _is_a_try(evidence: AttemptEvidence) -> bool:
    """False for what infrastructure ended: it takes none of the first k places."""
    outcome = evidence.attempt.outcome
    return evidence.seal is not None and outcome is not None and not outcome.end.retryable


def _reasons(
    board_file: BoardFile | None, terms: Terms, attempt: Attempt, place: int
) -> Iterable[str]:
    version = terms.tasks[attempt.cell.task]
    if not version.covers(attempt.cell.task_digest):
        yield (
            f"made for another version of the task ({attempt.cell.task_digest[:8]}, "
            f"this board ranks {version.digest[:8]})"
        )
    if board_file is None:
        return
    hold = next((h for h in board_file.holds if attempt.attempt_id.startswith(h.attempt)), None)
    if hold:
        yield f"on hold: {hold.reason}"
    if attempt.started_at > board_file.until:
        yield f"newer than the board ({board_file.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"
    if attempt.outcome and attempt.outcome.end not in board_file.ends:
        yield f"ended by {attempt.outcome.end}; the board admits {', '.join(board_file.ends)}"
    if attempt.entrant.network not in board_file.network:
        yield f"network {attempt.entrant.network}; the board admits {', '.join(board_file.network)}"
    if board_file.budget is not None and attempt.entrant.budget != board_file.budget:
        yield "another budget than the board's"
    if place >= board_file.attempts:
        yield f"attempt {place + 1} of its cell; the board counts the first {board_file.attempts}"


def _wrong_deck(board_file: BoardFile, deck: Deck) -> Iterable[str]:
    if board_file.deck != deck.name:
        pinned = board_file.deck
        yield f"deck: pins `{pinned}`, asked for `{deck.name}`; say --deck {pinned}"


def _unknown(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"no task of the deck; {f'did you mean `{near[0]}`?' if near else 'remove it'}"
