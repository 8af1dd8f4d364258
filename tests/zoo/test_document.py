"""The page about hostile submissions says what the tables hold."""

from pathlib import Path

from hostile import ATTACKS, FAMILIES, GPU
from hostile.document import document

PAGE = Path(__file__).parents[2] / "docs" / "hostile-submissions.md"


def test_the_page_is_what_the_tables_make() -> None:
    assert PAGE.read_text("utf-8") == document()


def test_there_are_at_least_sixty_and_no_name_twice() -> None:
    names = [attack.name for _, attacks in FAMILIES.values() for attack in attacks]
    assert len(names) == len(set(names)) == len(ATTACKS) >= 60
    assert len(GPU[1]) >= 10
