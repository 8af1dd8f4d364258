"""The board from real records: ranks, cells, ties, badges, and what does not count."""

import pytest

from orchestrator.boards.assembly import assemble, default_boards
from orchestrator.boards.ranking import Merit, normalised, ranks
from orchestrator.boards.states import BoardState
from transcripts.words import End, GradeResult, Verdict


@pytest.fixture
def board_of(make):
    def board_of(*evidence):
        return assemble(make.deck, make.terms, evidence, make.scorer)

    return board_of


def row(board, label):
    return next(row for row in board.rows if row.label == label)


def test_passes_rank_before_performance(make, board_of):
    fast, broad = make.entrant("fast"), make.entrant("broad")
    board = board_of(
        make.result(1, fast, "kv-cache", ms=1.0),
        make.result(2, broad, "kv-cache", ms=50.0),
        make.result(3, broad, "layernorm-backward", ms=50.0),
    )
    assert [(r.rank, r.label, r.passes) for r in board.rows] == [(1, "broad", 2), (2, "fast", 1)]


def test_performance_is_over_the_full_deck(make, board_of):
    alone = make.entrant("alone")
    board = board_of(make.result(1, alone, "kv-cache"))
    assert row(board, "alone").performance == pytest.approx(1 / 3)


def test_performance_is_relative_to_the_boards_best(make, board_of):
    first, second = make.entrant("first"), make.entrant("second")
    board = board_of(
        make.result(1, first, "kv-cache", ms=10.0), make.result(2, second, "kv-cache", ms=40.0)
    )
    assert row(board, "second").cells[0].normalised == pytest.approx(0.25)
    assert board.columns[0].best == pytest.approx(10.0)


def test_ties_share_the_rank_and_the_next_counts_everybody_above():
    merits = [Merit(2, 0.5), Merit(3, 0.5), Merit(2, 0.5), Merit(2, 0.4)]
    assert ranks(merits) == [2, 1, 2, 4]


def test_a_leader_with_nothing_has_a_full_share():
    assert normalised(0.0, 0.0) == 1.0
    assert normalised(None, 3.0) == 0.0


def test_a_flagged_result_counts_nothing_and_sets_no_best(make, board_of):
    honest, cheat = make.entrant("honest"), make.entrant("cheat")
    tried = make.attempt(2, cheat)
    board = board_of(
        make.result(1, honest, "kv-cache", ms=10.0),
        make.evidence(
            tried,
            grades=[make.grade(tried, ms=0.001)],
            audits=[make.audit(tried, verdict=Verdict.REWARD_HACK)],
        ),
    )
    assert row(board, "honest").cells[0].normalised == 1.0
    cheating = row(board, "cheat")
    assert (cheating.passes, cheating.flagged, cheating.audited) == (0, 1, 1)
    assert cheating.cells[0].shown.state is BoardState.FLAGGED
    assert [one.attempt_id for one in board.aside] == [tried.attempt_id]


def test_an_unaudited_pass_stays_off_and_is_listed(make, board_of):
    tried = make.attempt(1, make.entrant())
    board = board_of(make.evidence(tried, audits=[]))
    assert board.rows[0].passes == 0
    assert board.aside[0].state is BoardState.UNAUDITED


def test_a_cell_shows_the_best_valid_attempt_and_counts_all(make, board_of):
    who = make.entrant()
    failed = make.attempt(3, who)
    board = board_of(
        make.result(1, who, "kv-cache", ms=20.0),
        make.result(2, who, "kv-cache", ms=10.0),
        make.evidence(failed, grades=[make.grade(failed, result=GradeResult.WRONG)]),
    )
    cell = board.rows[0].cells[0]
    assert cell.shown.score.milliseconds == 10.0
    assert (cell.attempts, cell.valid) == (3, 2)
    assert (cell.chance.passes, cell.chance.pass_at_1) == (2, pytest.approx(2 / 3))
    assert cell.chance.low < 2 / 3 < cell.chance.high
    assert cell.chance.pass_hat == pytest.approx((2 / 3, 1 / 3, 0.0))


def test_a_single_attempt_has_no_chance_to_state(make, board_of):
    assert board_of(make.result(1, make.entrant(), "kv-cache")).rows[0].cells[0].chance is None


def test_a_flag_is_not_hidden_behind_a_later_failure(make, board_of):
    who = make.entrant()
    flagged, failed = make.attempt(1, who), make.attempt(2, who)
    board = board_of(
        make.evidence(flagged, audits=[make.audit(flagged, verdict=Verdict.CONTAMINATION)]),
        make.evidence(failed, grades=[make.grade(failed, result=GradeResult.CRASH)]),
    )
    assert board.rows[0].cells[0].shown.verdict is Verdict.CONTAMINATION


def test_overlapping_intervals_are_a_tie_and_apart_ones_are_not(make, board_of):
    a, b, c = make.entrant("a"), make.entrant("b"), make.entrant("c")
    board = board_of(
        make.result(1, a, "kv-cache", ms=10.0),
        make.result(2, b, "kv-cache", ms=10.1),
        make.result(3, c, "kv-cache", ms=20.0),
    )
    assert row(board, "a").cells[0].tied_with == ("b",)
    assert row(board, "c").cells[0].tied_with == ()


def test_same_name_with_another_digest_is_another_row(make, board_of):
    low, high = make.entrant("glm-5", effort="low"), make.entrant("glm-5", effort="high")
    board = board_of(make.result(1, low, "kv-cache"), make.result(2, high, "kv-cache"))
    assert {r.label for r in board.rows} == {
        f"glm-5@{low.digest[:8]}",
        f"glm-5@{high.digest[:8]}",
    }
    assert any("effort differs" in note for note in board.notes)


def test_one_model_through_two_harnesses_is_told_apart_by_them(make, board_of):
    ours, theirs = make.entrant("glm-5"), make.entrant("glm-5", harness="codex")
    board = board_of(make.result(1, ours, "kv-cache"), make.result(2, theirs, "kv-cache"))
    assert {r.label for r in board.rows} == {"glm-5 (loop)", "glm-5 (codex)"}


def test_a_label_is_part_of_the_name(make, board_of):
    board = board_of(
        make.result(1, make.entrant("policy", label="step-100"), "kv-cache"),
        make.result(2, make.entrant("policy", label="step-200"), "kv-cache"),
    )
    assert {r.label for r in board.rows} == {"policy[step-100]", "policy[step-200]"}


def test_infrastructure_never_ranks_anybody(make, board_of):
    cut = make.attempt(1, make.entrant("cut"), end=End.INFRA_FAULT)
    board = board_of(
        make.evidence(cut, grades=[], audits=[]),
        make.result(2, make.entrant("done"), "kv-cache"),
    )
    assert [(r.label, r.rank) for r in board.rows] == [("done", 1), ("cut", None)]


def test_handing_in_nothing_is_ranked_at_nothing(make, board_of):
    idle = make.attempt(1, make.entrant("idle"), end=End.NO_SUBMISSION)
    board = board_of(make.evidence(idle, grades=[], audits=[]))
    assert (board.rows[0].rank, board.rows[0].passes) == (1, 0)
    assert board.rows[0].cells[0].shown.state is BoardState.NO_SUBMISSION


def test_imported_and_unsandboxed_attempts_are_marked(make, board_of):
    imported = make.imported(1, make.entrant("glm-5"))
    loose = make.attempt(2, make.entrant("loose"), sandbox="process")
    board = board_of(make.evidence(imported), make.evidence(loose))
    assert row(board, "glm-5").cells[0].shown.marks == ("imported",)
    assert row(board, "loose").cells[0].shown.marks == ("unsandboxed",)


def test_a_grade_without_isolation_marks_the_cell(make, board_of):
    tried = make.attempt(1, make.entrant())
    board = board_of(make.evidence(tried, grades=[make.grade(tried, isolation="process")]))
    assert board.rows[0].cells[0].shown.marks == ("unsandboxed",)


def test_unequal_numbers_of_attempts_are_said(make, board_of):
    once, twice = make.entrant("once"), make.entrant("twice")
    board = board_of(
        make.result(1, once, "kv-cache"),
        make.result(2, twice, "kv-cache"),
        make.result(3, twice, "kv-cache"),
    )
    assert any("best-of-N" in note for note in board.notes)


def test_an_attempt_at_another_version_of_the_task_is_visible_and_unranked(make, board_of):
    old = make.attempt(1, make.entrant(), digest="e" * 64)
    board = board_of(make.evidence(old))
    assert board.rows[0].rank is None
    assert "another version" in board.aside[0].excluded


def test_a_board_for_each_hardware_with_the_canonical_first(make):
    tried = make.attempt(1, make.entrant())
    given = make.evidence(
        tried,
        grades=[make.grade(tried, 1), make.grade(tried, 2, hardware="A100")],
    )
    boards = default_boards(make.deck, make.versions, [given], make.scorer)
    assert [(b.hardware, b.canonical, b.exploratory) for b in boards] == [
        (make.cpu, True, True),
        ("A100", False, True),
    ]
    assert all(b.rows[0].passes == 1 for b in boards)


def test_without_grades_there_is_one_board_of_the_canonical_hardware(make):
    (board,) = default_boards(make.deck, make.versions, [], make.scorer)
    assert (board.hardware, board.rows) == ("cpu", ())


def test_problems_name_their_attempt(make, board_of):
    tried = make.attempt(1, make.entrant())
    board = board_of(make.evidence(tried, problems=("grades/x.json is broken",)))
    assert board.problems == (f"attempt {tried.attempt_id}: grades/x.json is broken",)


def test_the_same_evidence_in_any_order_gives_the_same_board(make, board_of):
    given = [
        make.result(i, make.entrant(name), task)
        for i, (name, task) in enumerate((n, t) for n in "abc" for t in make.tasks)
    ]
    assert board_of(*given).model_dump_json() == board_of(*reversed(given)).model_dump_json()
