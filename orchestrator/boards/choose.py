"""Find the entrants that a person names on a board."""

import difflib
from collections.abc import Sequence

from orchestrator.boards.conditions import entrant_differences
from orchestrator.boards.records import EntrantRow
from orchestrator.errors import UserError

_MIN_DIGITS = 4


class UnknownEntrant(UserError):
    """No entrant of that name, or several; the message offers what there is."""


def choose(rows: Sequence[EntrantRow], wanted: str) -> EntrantRow:
    """The row of ``wanted``: a name, or ``name@digest`` where several share it.

    Raises UnknownEntrant.
    """
    name, at, digits = wanted.rpartition("@")
    if at and len(digits) >= _MIN_DIGITS:
        exact = [
            row
            for row in rows
            if row.entrant.name == name and row.entrant_digest.startswith(digits)
        ]
        if len(exact) == 1:
            return exact[0]
    found = [row for row in rows if row.entrant.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        several = {f"{wanted}@{row.entrant_digest[:8]}": row.entrant for row in found}
        raise UnknownEntrant(
            f"{len(found)} entrants are called `{wanted}`; say which: {', '.join(several)}\n"
            + "\n".join(f"  {line}" for line in entrant_differences(several))
        )
    raise UnknownEntrant(f"no attempt of `{wanted}` here; {_offer(rows, wanted)}")


def _offer(rows: Sequence[EntrantRow], wanted: str) -> str:
    names = sorted({row.label for row in rows})
    if not names:
        return "the archive holds none of this deck at all: run `sweep` first"
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(f'`{name}`' for name in near)}?"
    return f"there are: {', '.join(names)}"
