"""Run a submission's own tests, as they are and with the result of an entry changed.

Tests are the submission's code, run in a jail of their own; that they pass or fail is all that
is taken from them. A test that passes whatever the entry returns earns only the first point; one
that looks at the file or at the entry instead of its results earns none: it must stay green where a
comment was added, and where the entry is wrapped as for a change that is then not made.
"""

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from graders import launch
from graders.candidate import Candidate
from graders.errors import readable
from graders.offers import Offers
from tasks.spec import RubricItem
from transcripts.records import ItemMeasurement

AT_ONCE = 2
_WRAPPER = """

def _changed(original, change, number):
    import functools

    @functools.wraps(original)
    def changed(*args, **kwargs):
        result = original(*args, **kwargs)
        return change(result) if number % 2 else result

    return changed
"""


def measure(item: RubricItem, candidate: Candidate) -> ItemMeasurement:
    """One point for running green, one for each mutation that some test notices."""
    params: dict[str, Any] = item.params
    files = _test_files(candidate, params["files"])
    if not files:
        return ItemMeasurement(
            item=item.id, measurable=True, total=1, detail="no test file was handed in"
        )
    mutations = params["mutations"]
    changes = [code for mutation in mutations if (code := _change(candidate, mutation))]
    wrapped = {m["entry"]: code for m in mutations if (code := _change(candidate, m, made=False))}
    codes = ["", _same_results(), *wrapped.values(), *changes]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        plain, *runs = pool.map(lambda c: _failing(candidate, files, params, c), codes)
    same = next(filter(None, runs[: 1 + len(wrapped)]), "")
    green = not plain and not same
    caught = sum(map(bool, runs[1 + len(wrapped) :])) if green else 0
    told = f"{len(files)} test files; "
    if green:
        told += f"{caught} of {len(changes)} changed results noticed"
    else:
        told += plain or f"they fail when no result is changed: {same}"
    return ItemMeasurement(
        item=item.id,
        measurable=True,
        passed=int(green) + caught,
        total=1 + len(changes),
        detail=readable(told[:500]),
    )


def _same_results() -> str:
    """Text that changes the file and no result: tests of results stay green."""
    return f"\n\n# {secrets.token_hex(8 + secrets.randbelow(200))}\n"


def _test_files(candidate: Candidate, patterns: list[str]) -> list[str]:
    root = candidate.place.submission
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    relative = {path.relative_to(root).as_posix() for path in found}
    return sorted(relative - {candidate.entry.file})


def _change(candidate: Candidate, mutation: dict[str, str], *, made: bool = True) -> str:
    """Code that wraps an entry at the end of its file; empty when the file does not define it.

    Whether the change is ``made`` shows in one number only, which is another each time.
    """
    head, _, method = mutation["entry"].partition(".")
    spelled = candidate.entry.names.get(head, head)
    target = f"{spelled}.{method}" if method else spelled
    if not Offers().has(candidate.place.submission / candidate.entry.file, target):
        return ""
    number = 2 * secrets.randbelow(1 << 60) + made
    return _WRAPPER + f"\n\n{target} = _changed({target}, {mutation['change']}, {number})\n"


def _append(submission: Path, file: str, text: str) -> None:
    target = submission / file
    target.chmod(0o644)
    with target.open("a") as opened:
        opened.write(text)


def _failing(candidate: Candidate, files: list[str], params: dict[str, Any], appended: str) -> str:
    """The first test that does not end with 0, and its last words; empty when all do."""
    change = partial(_append, file=candidate.entry.file, text=appended)
    with launch.changed_world(candidate.place, change) as place:
        for file in files:
            seconds = min(float(params["timeout_s"]), candidate.deadline - time.monotonic())
            code, tail = launch.run_file(
                place, file, params["arguments"], seconds, candidate.task.limits.memory_bytes
            )
            if code != 0:
                how = "did not end in time" if code is None else f"ended with {code}"
                return f"{file} {how}: {tail[-300:]}"
    return ""
