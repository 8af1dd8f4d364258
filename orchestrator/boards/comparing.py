"""The three comparisons behind the verb: a published round, models of an archive, two archives."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.boards.board import build
from orchestrator.boards.conditions import NotComparable
from orchestrator.boards.making import make_round
from orchestrator.boards.paired import Paired, compare_boards
from orchestrator.boards.paired_markdown import paired_markdown
from orchestrator.boards.round_file import find_round, read_round
from orchestrator.boards.round_markdown import round_markdown
from orchestrator.boards.rounds import Round, mismatches, pairs
from orchestrator.errors import UserError
from transcripts.records import Record
from transcripts.store import Archive

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Wanted:
    """What was asked for."""

    models: tuple[str, ...]
    round_name: str
    other: Path | None
    deck: str
    anyway: bool


@dataclass(frozen=True)
class Compared:
    """A comparison in its forms."""

    data: dict[str, Any]
    markdown: str
    saved: Record
    is_mismatch: bool = False

    @property
    def saved_json(self) -> str:
        """What ``--out x.json`` holds; a round can be read again with ``--round``."""
        return self.saved.model_dump_json(indent=1, exclude_defaults=True) + "\n"


def compare(archive: Path, wanted: Wanted) -> Compared:
    """Compare. Raises NotComparable unless ``wanted.anyway``, or UserError for what is missing."""
    if wanted.round_name:
        if wanted.models or wanted.other:
            raise UserError("--round prints a published round as it is: name no models, no --with")
        return _of_round(read_round(find_round(wanted.round_name, archive)))
    if wanted.other is not None:
        return _of_archives(archive, wanted.other, wanted)
    if len(wanted.models) < 2:
        raise UserError(
            "name two models or more (`orchestrator compare oracle naive`), a published round "
            "(`--round FILE`), or a second archive (`--with ARCHIVE`)"
        )
    a_round = make_round(Archive.open(archive, read_only=True), wanted.deck, wanted.models)
    _refuse(a_round.unfair, wanted)
    return _of_round(a_round)


def show(markdown: str, console: "Console") -> None:
    """Print Markdown: set for people on a terminal, as it is elsewhere."""
    if console.is_terminal:
        from rich.markdown import Markdown  # noqa: PLC0415 - start-up time

        console.print(Markdown(markdown))
    else:
        console.print(markdown, markup=False, soft_wrap=True, end="")


def _of_round(a_round: Round) -> Compared:
    wrong = mismatches(a_round)
    data = {
        "round": a_round.model_dump(mode="json"),
        "pairs": [pair.model_dump(mode="json") for pair in pairs(a_round)],
        "unfair": a_round.unfair,
        "mismatches": wrong,
    }
    return Compared(data, round_markdown(a_round), a_round, is_mismatch=bool(wrong))


def _of_archives(first: Path, second: Path, wanted: Wanted) -> Compared:
    if len(wanted.models) > 2:
        raise UserError("two archives compare at most two models: one of each")
    boards = [build(Archive.open(path, read_only=True), wanted.deck) for path in (first, second)]
    shared = {board.hardware for board in boards[0]} & {board.hardware for board in boards[1]}
    left, right = (
        next((board for board in each if board.hardware in shared), each[0]) for each in boards
    )
    paired = compare_boards(left, right, wanted.models)
    _refuse(paired.unfair, wanted)
    return _of_pairing(paired)


def _of_pairing(paired: Paired) -> Compared:
    return Compared(paired.model_dump(mode="json"), paired_markdown(paired), paired)


def _refuse(unfair: list[str] | tuple[str, ...], wanted: Wanted) -> None:
    if unfair and not wanted.anyway:
        raise NotComparable(
            "not comparable:\n"
            + "\n".join(f"  - {line}" for line in unfair)
            + "\n`--anyway` prints it with all of that above the scores"
        )
