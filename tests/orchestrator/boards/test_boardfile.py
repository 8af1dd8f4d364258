"""Board files: what they admit, and what a mistake in one says."""

import pytest

from orchestrator.boards.assembly import assemble
from orchestrator.boards.boardfile import BadBoardFile, load_board_file
from transcripts.words import End, GradeResult, Verdict

TEXT = """\
name = "rounds-2026-05"
deck = "rounds"
hardware = "cpu:AMD EPYC 9654"
until = 2026-05-02T00:00:00Z
attempts = 1
ends = ["submitted"]
network = ["none"]

[tasks.kv-cache]
digest = "1111111111"
scoring_version = 1

[tasks.layernorm-backward]
digest = "2222222222"
scoring_version = 1

[tasks.fused-softmax-topk]
digest = "3333333333"
scoring_version = 1
"""


@pytest.fixture
def load(tmp_path, make):
    def load(text=TEXT):
        path = tmp_path / "board.toml"
        path.write_text(text)
        return load_board_file(path, make.deck)

    return load


@pytest.fixture
def pinned(load, make):
    def pinned(*evidence, more=""):
        board_file = load(TEXT + more)
        return assemble(make.deck, board_file.terms, evidence, make.scorer, board_file)

    return pinned


def test_a_pinned_board_has_its_name_and_is_not_exploratory(pinned, make):
    board = pinned(make.result(1, make.entrant(), "kv-cache"))
    assert (board.name, board.exploratory) == ("rounds-2026-05", False)
    assert board.rows[0].rank == 1


def test_only_the_first_attempts_count_even_when_a_later_one_is_better(pinned, make):
    who = make.entrant()
    board = pinned(
        make.result(1, who, "kv-cache", ms=20.0), make.result(2, who, "kv-cache", ms=1.0)
    )
    cell = board.rows[0].cells[0]
    assert (cell.shown.score.milliseconds, cell.attempts) == (20.0, 1)
    assert board.aside[0].excluded.startswith("attempt 2 of its cell")


def test_a_cell_shows_what_is_admitted_before_what_is_not(pinned, make):
    who = make.entrant()
    failed, flagged = make.attempt(1, who), make.attempt(2, who)
    board = pinned(
        make.evidence(failed, grades=[make.grade(failed, result=GradeResult.WRONG)]),
        make.evidence(flagged, audits=[make.audit(flagged, verdict=Verdict.REWARD_HACK)]),
    )
    assert board.rows[0].cells[0].shown.attempt_id == failed.attempt_id
    assert (board.rows[0].rank, board.rows[0].flagged) == (1, 0)


def test_what_infrastructure_ended_takes_no_place(pinned, make):
    who = make.entrant()
    cut = make.attempt(1, who, end=End.PROVIDER_FAULT)
    board = pinned(make.evidence(cut, grades=[], audits=[]), make.result(2, who, "kv-cache"))
    assert board.rows[0].passes == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"end": End.LIMIT}, "ended by limit"),
        ({"network": "pypi.org"}, "network pypi.org"),
        ({"until": True}, "newer than the board"),
    ],
)
def test_what_is_not_admitted_is_visible_with_its_reason(pinned, make, changes, said):
    who = make.entrant(network=changes.pop("network", "none"))
    number = 60 * 24 if changes.pop("until", False) else 1
    board = pinned(make.evidence(make.attempt(number, who, **changes)))
    assert board.rows[0].rank is None
    assert board.aside[0].excluded.startswith(said)


def test_a_hold_keeps_an_attempt_off_and_prints_why(pinned, make):
    result = make.result(1, make.entrant(), "kv-cache")
    hold = f'[[holds]]\nattempt = "{result.attempt.attempt_id}"\nreason = "readers disagree"\n'
    board = pinned(result, more=hold)
    assert board.rows[0].passes == 0
    assert board.aside[0].excluded == "on hold: readers disagree"


def test_the_boards_budget_must_be_the_entrants(pinned, make):
    board = pinned(make.result(1, make.entrant(), "kv-cache"), more="[budget]\nmax_steps = 100\n")
    assert board.aside[0].excluded == "another budget than the board's"


def test_new_work_does_not_change_a_pinned_ranking(pinned, make):
    old = [
        make.result(1, make.entrant("a"), "kv-cache"),
        make.result(2, make.entrant("b"), "kv-cache", ms=30.0),
    ]
    a_day = 60 * 24
    new = [
        make.result(a_day, make.entrant("c"), "kv-cache", ms=0.1),
        make.result(a_day + 1, make.entrant("b"), "kv-cache", ms=0.1),
        make.result(a_day + 2, make.entrant("a", effort="high"), "kv-cache", ms=0.1),
    ]
    before, after = pinned(*old), pinned(*old, *new)
    assert after.rows[: len(before.rows)] == before.rows
    assert [r.rank for r in after.rows[len(before.rows) :]] == [None, None]


def test_a_late_flag_changes_nothing_and_is_told(pinned, make):
    tried = make.attempt(1, make.entrant())
    flag = make.audit(tried, 60 * 24, verdict=Verdict.REWARD_HACK)
    board = pinned(make.evidence(tried, audits=[make.audit(tried), flag]))
    assert board.rows[0].passes == 1
    assert flag.audit_id in board.problems[0]


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        (
            "hardwre =",
            "hardware =",
            "board.toml:3: hardwre: unknown field; did you mean `hardware`",
        ),
        ("attempts = 0", "attempts = 1", "board.toml:5: attempts: "),
        ('["submited"]', '["submitted"]', "board.toml:6: ends.0: "),
        ("until = 2026-05-02T00:00:00\n", "until = 2026-05-02T00:00:00Z\n", "board.toml:4: until"),
        ("attempts = = 1", "attempts = 1", "board.toml:5: not TOML"),
        ("scorng_version = 1\n\n[tasks.l", "scoring_version = 1\n\n[tasks.l", "board.toml:11"),
        ("[tasks.kv-cahce]", "[tasks.kv-cache]", "did you mean `kv-cache`"),
        ('deck = "cuda"', 'deck = "rounds"', "say --deck cuda"),
    ],
)
def test_a_mistake_is_told_with_file_line_field_and_mend(load, wrong, right, said):
    with pytest.raises(BadBoardFile) as caught:
        load(TEXT.replace(right, wrong, 1))
    assert said in str(caught.value)


def test_a_missing_board_file_says_so(tmp_path, make):
    with pytest.raises(BadBoardFile, match="missing"):
        load_board_file(tmp_path / "none.toml", make.deck)
