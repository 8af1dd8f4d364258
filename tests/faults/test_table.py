"""The table of faults, its page and its tests say the same."""

import ast
from pathlib import Path

import pytest

from fault_table import FAULTS, Fault, page
from transcripts.words import End

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_table() -> None:
    written = (ROOT / "docs" / "faults.md").read_text()
    assert written == page(), "run: python tests/support/fault_table.py > docs/faults.md"


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.fault)
def test_every_row_has_its_test(row: Fault) -> None:
    file, _, function = row.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_ends_are_words_of_the_vocabulary() -> None:
    words = {row.end.partition(" (")[0] for row in FAULTS}
    assert words <= {"-", *End}


def test_every_test_of_a_fault_has_its_row() -> None:
    named = {row.test for row in FAULTS}
    found = {
        f"tests/faults/{path.name}::{node.name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert found <= named
