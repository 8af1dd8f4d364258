"""What is printed: text from outside never steers the terminal and never breaks a table."""

import json

import pytest

from orchestrator.output import Printer, cell, console, printable


def test_controls_are_spelled_out_and_words_are_kept() -> None:
    hostile = "a\x1b[31mred\x1b]0;title\x07 \x00 \u202eright-to-left \ud800 tab\tline\nümlaut"
    shown = printable(hostile)
    assert "\x1b" not in shown
    assert shown.startswith("a\\x1b[31mred\\x1b]0;title\\x07")
    assert "tab\tline\nümlaut" in shown
    assert shown.encode()  # no lone surrogate is left


def test_strings_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    out.print("model[/red] [bold]x[/bold]")
    assert capsys.readouterr().out == "model[/red] [bold]x[/bold]\n"
    assert cell("[red]x").plain == "[red]x"


def test_json_is_valid_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(as_json=True).emit({"text": "\ud800\x1b"}, lambda _: None)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert json.loads(printed) == {"text": "\ud800\x1b"}
