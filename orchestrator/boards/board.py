"""The board: one per deck and hardware, computed from the archive alone."""

from pathlib import Path

from orchestrator.boards.assembly import assemble, default_boards
from orchestrator.boards.boardfile import check_pins, load_board_file
from orchestrator.boards.evidence import hardware_of
from orchestrator.boards.reading import read_evidence, versions_of
from orchestrator.boards.records import Board
from orchestrator.boards.scores import scorer_of
from tasks.deck import deck_tasks, load_deck
from transcripts.store import Archive


def build(archive: Archive, deck: str, board_file: Path | None = None) -> list[Board]:
    """The boards of one deck: one per hardware, or the one that ``board_file`` pins.

    Raises UnknownDeck, BadBoardFile, or BrokenTask when a task is not the one that the deck locks.
    """
    declared = load_deck(deck)
    tasks = deck_tasks(declared)
    evidence = read_evidence(archive, [task.name for task in tasks])
    scorer = scorer_of(declared, tasks)
    if board_file is None:
        return default_boards(declared, versions_of(tasks), evidence, scorer)
    pinned = load_board_file(board_file, declared)
    check_pins(board_file, pinned, versions_of(tasks), hardware_of(evidence))
    return [assemble(declared, pinned.terms, evidence, scorer, pinned)]
