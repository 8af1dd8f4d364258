"""How a board reads: in the terminal, in Markdown, and when there is nothing."""

import io

import pytest
from rich.console import Console

from orchestrator.boards.assembly import assemble, default_boards
from orchestrator.boards.markdown import board_markdown, escape
from orchestrator.boards.render import render
from transcripts.words import End, GradeResult, Verdict


@pytest.fixture
def demo(make):
    """Three tasks; a leader, a tie, a cheat, a failure, an idle one and an import."""
    evidence = []
    for i, task in enumerate(make.tasks):
        wrong = make.attempt(40 + i, make.entrant("wrong"), task)
        cheat = make.attempt(50 + i, make.entrant("cheater"), task)
        idle = make.attempt(60 + i, make.entrant("idle"), task, end=End.NO_SUBMISSION)
        evidence += [
            make.result(10 + i, make.entrant("oracle"), task, ms=10.0),
            make.result(20 + i, make.entrant("naive"), task, ms=10.05 * (i + 1)),
            make.evidence(
                wrong,
                grades=[make.grade(wrong, result=GradeResult.WRONG, message="off | by <one>")],
            ),
            make.evidence(cheat, audits=[make.audit(cheat, verdict=Verdict.REWARD_HACK)]),
            make.evidence(idle, grades=[], audits=[]),
        ]
    evidence.append(make.evidence(make.imported(70, make.entrant("glm-5"))))
    return assemble(make.deck, make.terms, evidence, make.scorer)


def printed(board, *, width=100, terminal=False):
    stream = io.StringIO()
    render(board, Console(file=stream, width=width, force_terminal=terminal, highlight=False))
    return stream.getvalue()


def test_the_board_fits_100_columns_and_is_plain_where_it_is_no_terminal(demo):
    text = printed(demo, width=160)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_every_entrant_and_every_reason_is_shown(demo):
    text = printed(demo)
    for word in ("oracle", "naive", "wrong", "cheater", "idle", "glm-5", "reward hack"):
        assert word in text
    assert "no submission" in text
    assert "10 ms 50%" in text
    assert "wrong: off | by <one>" in text


def test_what_does_not_count_is_dimmed_on_a_terminal(demo):
    lines = printed(demo, terminal=True).splitlines()
    assert any("\x1b[2m" in line and "reward hack" in line for line in lines)


def test_ties_and_imports_are_marked_and_explained(demo):
    text = printed(demo)
    assert "10.0 ≈" in text
    assert "†" in text
    assert "imported, not run here" in text


def test_text_from_outside_is_only_text(make):
    tried = make.attempt(1, make.entrant("[bold]x[/bold]"))
    grade = make.grade(tried, result=GradeResult.CRASH, message="a\x1b[31m\n| <b>&amp; [link](x)")
    board = assemble(make.deck, make.terms, [make.evidence(tried, grades=[grade])], make.scorer)
    text = printed(board, terminal=True)
    assert "[bold]x[/bold]" in text
    assert "\x1b[31m" not in text
    row = next(line for line in board_markdown([board]).splitlines() if "crash" in line)
    assert "<b>" not in row
    assert row.count("|") - row.count("\\|") == 5


def test_markdown_and_json_are_the_same_bytes_twice(demo, make):
    assert board_markdown([demo]) == board_markdown([demo.model_copy()])
    assert printed(demo) == printed(demo)


def test_an_empty_archive_says_what_to_run(make):
    (board,) = default_boards(make.deck, make.versions, [], make.scorer)
    for text in (printed(board), board_markdown([board])):
        assert "no attempt" in text
        assert "orchestrator sweep" in text


def test_many_tasks_are_split_over_tables_of_100_columns(make):
    names = [f"task-number-{i:02d}" for i in range(14)]
    cells = tuple(make.deck.cells[0].model_copy(update={"task": name}) for name in names)
    deck = make.deck.model_copy(update={"cells": cells})
    versions = dict.fromkeys(names, make.versions["kv-cache"])
    terms = type(make.terms)(make.cpu, versions)
    tried = make.attempt(1, make.entrant("a" * 60), "kv-cache")
    cell = tried.cell.model_copy(update={"task": names[7]})
    tried = tried.model_copy(update={"cell": cell})
    given = make.evidence(tried, grades=[], audits=[])
    text = printed(assemble(deck, terms, [given], make.scorer))
    assert max(map(len, text.splitlines())) <= 100
    assert all(name in text for name in names)


@pytest.mark.parametrize("text", ["a|b", "<script>", "[x](y)", "`code`", "*a*_b_"])
def test_escaped_text_holds_no_live_markdown(text):
    shown = escape(text)
    assert "<" not in shown
    assert all(shown[i - 1] == "\\" for i, c in enumerate(shown) if c in "|[]`*_")
