"""The words and figures of a board, the same in the terminal and in Markdown."""

import unicodedata
from collections.abc import Sequence

from orchestrator.boards.records import Board, Cell, CellScore, Listing
from orchestrator.boards.states import BoardState

TIE = "≈"
SYMBOLS = {"imported": "†", "unsandboxed": "‡", "quick": "~"}
_LEGEND = {
    "imported": "imported, not run here",
    "unsandboxed": "ran or was graded without isolation (`process`)",
    "quick": "graded with the quick tier",
}
_MEANINGS = {
    "rubric": "points of 100",
    "peak_fraction": "fraction of the datasheet peak",
    "speedup": "speed-up over the baseline",
}
_LONGEST = 200


def heading(board: Board) -> str:
    """What the board is of."""
    return f"{board.name or board.deck} on {plain(board.hardware)}"


def standing_line(board: Board) -> str:
    """How much the board says: canonical or not, pinned or exploratory, and the unit."""
    pinned = (
        "exploratory: no board file pins it" if board.exploratory else "pinned by its board file"
    )
    canonical = "canonical hardware" if board.canonical else "not the deck's canonical hardware"
    return f"{board.title}. {canonical}; {pinned}; cells in {_MEANINGS[board.unit]}"


def cell_lines(cell: Cell, unit: str) -> list[str]:
    """A cell's text: score and marks, time, chance to pass; or why there is no score."""
    if cell.shown is None:
        return ["–"]
    tries = f" ({cell.attempts} tries)" if cell.attempts > 1 else ""
    marks = "".join(SYMBOLS[mark] for mark in cell.shown.marks)
    if not cell.shown.counts:
        word = "exploratory" if cell.shown.excluded else _state_word(cell.shown)
        return [f"{word}{marks}{tries}"]
    tie = f" {TIE}" if cell.tied_with else ""
    lines = [f"{score_text(cell.shown.score, unit)}{tie}{marks}{tries}"]
    lines.extend(filter(None, [time_text(cell.shown.score)]))
    if cell.chance:
        chance = cell.chance
        lines.append(f"pass@1 {chance.pass_at_1:.0%}")
        lines.append(f"[{chance.low:.0%}, {chance.high:.0%}]")
    return lines


def score_text(score: CellScore | None, unit: str) -> str:
    """The native score of a cell."""
    if score is None:
        return "no score"
    if unit == "rubric":
        return f"{score.value:.1f}"
    return f"{score.value:.2f}x" if unit == "speedup" else f"{score.value:.4f}"


def time_text(score: CellScore | None) -> str:
    """Milliseconds and the fractions of roofline and measured ceiling, as far as they are known."""
    if score is None or score.milliseconds is None:
        return ""
    roof = "" if score.roofline is None else f" {score.roofline:.0%}"
    measured = "" if score.measured is None else f" ({score.measured:.0%})"
    return f"{score.milliseconds:.3g} ms{roof}{measured}"


def reason(listing: Listing) -> str:
    """Why an attempt does not count."""
    parts = [listing.excluded] if listing.excluded else [listing.why]
    if listing.detail:
        parts.append(listing.detail)
    return plain("; ".join(dict.fromkeys(parts)))


def hacks(flagged: int, audited: int) -> str:
    """The badge: flagged audited of audited."""
    return f"{flagged}/{audited}" if audited else "–"


def legend(board: Board) -> list[str]:
    """What the figures and marks of this board mean; only those that it uses."""
    cells = [cell for row in board.rows for cell in row.cells if cell.shown]
    used = {mark for cell in cells if cell.shown for mark in cell.shown.marks}
    lines = [f"{SYMBOLS[mark]} {_LEGEND[mark]}" for mark in SYMBOLS if mark in used]
    if any(cell.tied_with for cell in cells):
        lines.insert(0, f"{TIE} statistical tie: 95% interval overlaps another's on this task")
    scores = [cell.shown.score for cell in cells if cell.shown and cell.shown.counts]
    if any(time_text(score) for score in scores):
        lines.append(
            "ms and %: geometric means over the shapes; % of the roofline (measured, on a CPU)"
        )
    if any(score and score.measured is not None for score in scores):
        lines.append("(%) of the ceiling measured on that GPU: copy bandwidth, or a matrix product")
    return lines


def short_id(attempt_id: str) -> str:
    """The end of an attempt's id, which is its random part; the archive finds attempts by it."""
    return attempt_id[-12:]


def plain(text: str) -> str:
    """One line without control or direction characters: what submissions print is only data."""
    words = " ".join(text.split())
    shown = "".join(c for c in words if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co"})
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def empty_message(board: Board) -> list[str]:
    """What to say of a board without attempts, and what to run."""
    return [
        f"The archive holds no attempt at a task of deck `{board.deck}`.",
        "Make some, without any key or GPU:",
        f"  orchestrator sweep --models oracle,naive,wrong --deck {board.deck}",
    ]


def _state_word(listing: Listing) -> str:
    if listing.state is BoardState.FLAGGED:
        return str(listing.verdict).replace("_", " ")
    return str(listing.state).replace("_", " ")


def task_groups(tasks: Sequence[str], first: int = 3, later: int = 4) -> list[list[int]]:
    """Positions of the tasks table by table, so that no table is wider than 100 columns."""
    positions = list(range(len(tasks)))
    groups = [positions[:first]]
    groups += [positions[i : i + later] for i in range(first, len(positions), later)]
    return groups
