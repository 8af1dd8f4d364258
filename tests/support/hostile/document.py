"""``docs/hostile-submissions.md``, made from the tables: ``python -m hostile.document > FILE``."""

from collections.abc import Iterable

from hostile import ATTACKS, FAMILIES, GPU
from hostile.base import Attack

HEAD = """# Hostile submissions

Each line is a submission of the test suite (`tests/support/hostile`), graded by `tests/zoo` on a
small task, and the word that its grade must end in. `pass` is right for what comes to nothing: the
result is right, and what was tried was refused or reached nobody (reaching it would end in
`crash`). Beside the word, each test requires that a probe has found what it should find, that the
next honest submission of the same process passes, and that no process, file, mapping or descriptor
is left.

There are {cpu} that run on a CPU, in every run of the tests, and {gpu} for a GPU
(`make test-gpu`).

The tables make this page (`PYTHONPATH=tests/support python -m hostile.document`); a test compares.
"""


def document() -> str:
    """The whole page."""
    parts = [HEAD.format(cpu=len(ATTACKS), gpu=len(GPU[1]))]
    parts += [_section(name, *family) for name, family in FAMILIES.items()]
    return "\n".join([*parts, _section("gpu", *GPU)])


def _section(name: str, about: str, attacks: Iterable[Attack]) -> str:
    told = " ".join(about.split())
    lines = [f"## {name}", "", told, "", "| attack | what it tries | word |", "| --- | --- | --- |"]
    return "\n".join([*lines, *map(_line, attacks), ""])


def _line(attack: Attack) -> str:
    found = f", finds `{attack.finding}`" if attack.finding else ""
    group = ", where cgroup v2 can be written" if attack.needs_group else ""
    return f"| {_cell(attack.name)} | {_cell(attack.tries)} | `{attack.word}`{found}{group} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(document(), end="")
