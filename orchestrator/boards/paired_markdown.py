"""Markdown of two archives side by side."""

from collections.abc import Iterator

from orchestrator.boards.markdown import escape, table
from orchestrator.boards.paired import Paired
from orchestrator.boards.round_markdown import signed
from orchestrator.boards.wording import TIE


def paired_markdown(paired: Paired) -> str:
    """The comparison; the same comparison gives the same bytes."""
    return "\n".join(_lines(paired)) + "\n"


def _lines(paired: Paired) -> Iterator[str]:
    yield from ("# Two archives, cell by cell", "")
    if paired.unfair or paired.remarks:
        yield from (f"- **Not comparable:** {escape(line)}" for line in paired.unfair)
        yield from (f"- {escape(line)}" for line in paired.remarks)
        yield ""
    rows = (
        [
            escape(cell.entrant),
            escape(cell.task),
            f"{cell.first:.4g}",
            f"{cell.second:.4g}",
            signed(cell.difference, digits=4) + (f" {TIE}" if cell.tie else ""),
        ]
        for cell in paired.cells
    )
    yield from table(["entrant", "task", "first", "second", "difference"], rows)
    yield ""
    yield (
        f"- the second wins {paired.wins}, loses {paired.losses}, ties {paired.ties} "
        f"({TIE}: the 95% intervals overlap)"
    )
    yield (
        f"- mean difference {signed(paired.mean_difference, digits=4)}, 95% bootstrap interval "
        f"[{signed(paired.low, digits=4)}, {signed(paired.high, digits=4)}]"
    )
    yield f"- sign test without ties: p = {paired.sign_test_p:.3g}"
