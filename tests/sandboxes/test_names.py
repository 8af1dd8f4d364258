from hypothesis import given
from hypothesis import strategies as st

from sandboxes.names import DERIVED, MAX_LINES, LeftOut, is_derived, printable, why_not_kept


@given(st.text())
def test_what_is_shown_is_one_bounded_line_that_controls_no_terminal(name: str) -> None:
    for text in (name, "\x1b]0;" + name, name * 50):
        assert printable(text).isprintable()
        assert len(printable(text)) <= 220


def test_plain_names_are_shown_as_they_are() -> None:
    assert printable("a/solution v2.py") == "a/solution v2.py"
    assert printable("\N{GREEK SMALL LETTER ALPHA}") == "\N{GREEK SMALL LETTER ALPHA}"
    assert printable("\udcff") == "\\xff"
    assert printable("\x1b[2J\u202e\ud800") == "\\x1b[2J\\u202e\\ud800"


def test_the_longest_names_that_are_kept() -> None:
    assert why_not_kept(("n" * 255,)) is None
    assert "too long" in str(why_not_kept(("n" * 256,)))
    assert "too long" in str(why_not_kept(("\N{GREEK SMALL LETTER ALPHA}" * 128,)))
    assert why_not_kept(("d" * 127,) * 8) is None
    assert "too long" in str(why_not_kept(("d" * 127,) * 8 + ("f",)))
    assert "UTF-8" in str(why_not_kept(("a", "\udcff")))
    assert "cannot be shown" in str(why_not_kept(("a\n", "b")))


def test_derived_names_are_whole_components() -> None:
    assert is_derived("__pycache__")
    assert is_derived("x.pyc")
    assert not is_derived("my__pycache__")


def test_of_a_flood_the_nearest_are_named_and_derived_ones_last() -> None:
    out = LeftOut()
    out.add((".git",), DERIVED)
    for number in range(MAX_LINES):
        out.add(("deep", str(number)), "a link or special file")
    out.add(("solution.py",), "a link or special file")
    lines = out.lines()
    assert lines[0] == "solution.py: a link or special file"
    assert lines[-1] == "and 2 more"
    assert len(lines) == MAX_LINES + 1
