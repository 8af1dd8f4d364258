"""Two boards of one deck, paired cell by cell."""

import pytest

from orchestrator.boards.assembly import assemble
from orchestrator.boards.choose import UnknownEntrant, choose
from orchestrator.boards.paired import compare_boards
from orchestrator.boards.paired_markdown import paired_markdown
from orchestrator.errors import UserError
from transcripts.words import GradeResult


@pytest.fixture
def board_of(make):
    def board_of(*evidence):
        return assemble(make.deck, make.terms, evidence, make.scorer)

    return board_of


def results(make, who, *, ms, start=1, **changes):
    return [
        make.result(start + i, who, task, ms=ms, **changes) for i, task in enumerate(make.tasks)
    ]


def test_equal_digests_are_paired_and_counted(make, board_of):
    who = make.entrant()
    paired = compare_boards(
        board_of(*results(make, who, ms=20.0)), board_of(*results(make, who, ms=10.0, start=9))
    )
    assert [cell.difference for cell in paired.cells] == pytest.approx([5.0] * 3)
    assert (paired.wins, paired.losses, paired.ties) == (3, 0, 0)
    assert paired.low == paired.high == pytest.approx(5.0)
    assert paired.sign_test_p == pytest.approx(0.25)
    assert paired.unfair == ()


def test_overlapping_intervals_are_a_tie(make, board_of):
    who = make.entrant()
    paired = compare_boards(
        board_of(*results(make, who, ms=10.0)), board_of(*results(make, who, ms=10.05))
    )
    assert (paired.wins, paired.ties, paired.sign_test_p) == (0, 3, 1.0)


def test_a_failure_counts_nothing_and_what_is_undecided_is_left_out(make, board_of):
    who = make.entrant()
    failed, waiting = make.attempt(7, who, "kv-cache"), make.attempt(8, who, "layernorm-backward")
    paired = compare_boards(
        board_of(*results(make, who, ms=10.0)),
        board_of(
            make.evidence(failed, grades=[make.grade(failed, result=GradeResult.WRONG)]),
            make.evidence(waiting, grades=[], audits=[]),
        ),
    )
    assert [(cell.task, cell.second) for cell in paired.cells] == [("kv-cache", 0.0)]


def test_another_effort_or_toolchain_is_not_comparable_and_named(make, board_of):
    low, high = make.entrant("glm-5", effort="low"), make.entrant("glm-5", effort="high")
    paired = compare_boards(
        board_of(*results(make, low, ms=10.0)),
        board_of(*results(make, high, ms=10.0, toolchain_digest="9" * 64)),
    )
    assert "glm-5: effort differs: first low, second high" in paired.unfair
    assert any("toolchain of kv-cache differs" in line for line in paired.unfair)
    markdown = paired_markdown(paired)
    assert markdown.index("Not comparable") < markdown.index("| entrant")


def test_unequal_numbers_of_attempts_are_not_comparable(make, board_of):
    who = make.entrant()
    paired = compare_boards(
        board_of(make.result(1, who, "kv-cache")),
        board_of(make.result(2, who, "kv-cache"), make.result(3, who, "kv-cache")),
    )
    assert any("attempts at kv-cache differs: first 1, second 2" in line for line in paired.unfair)


def test_two_models_pair_one_of_each_archive(make, board_of):
    paired = compare_boards(
        board_of(*results(make, make.entrant("a"), ms=10.0)),
        board_of(*results(make, make.entrant("b"), ms=5.0)),
        ["a", "b"],
    )
    assert {cell.entrant for cell in paired.cells} == {"a / b"}


def test_nothing_to_pair_says_what_to_do(make, board_of):
    with pytest.raises(UserError, match="MODEL_A MODEL_B"):
        compare_boards(
            board_of(*results(make, make.entrant("a"), ms=1.0)),
            board_of(*results(make, make.entrant("b"), ms=1.0)),
        )


def test_an_unknown_entrant_offers_the_nearest(make, board_of):
    board = board_of(*results(make, make.entrant("oracle"), ms=1.0))
    with pytest.raises(UnknownEntrant, match="did you mean `oracle`"):
        choose(board.rows, "orcale")


def test_a_shared_name_asks_which_and_takes_the_digest(make, board_of):
    low, high = make.entrant("glm-5", effort="low"), make.entrant("glm-5", effort="high")
    board = board_of(make.result(1, low, "kv-cache"), make.result(2, high, "kv-cache"))
    with pytest.raises(UnknownEntrant, match=f"glm-5@{low.digest[:8]}") as caught:
        choose(board.rows, "glm-5")
    assert "effort differs" in str(caught.value)
    assert choose(board.rows, f"glm-5@{high.digest[:8]}").entrant == high
