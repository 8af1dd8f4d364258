"""Audit a folder that is in no archive, or the submissions that a task ships.

python -m graders.auditor kv-cache path/to/submission
python -m graders.auditor kv-cache --matrix [--grade]
"""

import argparse
import sys
from pathlib import Path

from graders.auditor.matrix import matrix, table
from graders.auditor.pipeline import audit
from tasks.errors import TaskError
from tasks.loader import load_task
from tasks.spec import Task
from transcripts.records import Grade


def main(arguments: list[str] | None = None) -> int:
    """Print findings or the matrix; 1 when a case of the matrix is not as expected."""
    parser = argparse.ArgumentParser(prog="python -m graders.auditor", description=__doc__)
    parser.add_argument("task")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--matrix", action="store_true", help="the task's own submissions")
    parser.add_argument("--grade", action="store_true", help="behaviour too: grade each first")
    given = parser.parse_args(arguments)
    if given.matrix == (given.folder is not None):
        parser.error("give either a folder or --matrix")
    try:
        task = load_task(given.task)
        return _matrix(task, given.grade) if given.matrix else _audit(task, given.folder)
    except TaskError as error:
        print(error, file=sys.stderr)
        return 2


def _audit(task: Task, folder: Path) -> int:
    result = audit(task, folder, grades=(), events=None, attempt_id=None, attempt_seal=None)
    print(result.summary)
    for finding in result.findings:
        lines = f":{finding.lines[0]}" if finding.lines else ""
        print(f"[{finding.strength}] {finding.check} {finding.place}{lines}: {finding.why}")
        print(f"    {finding.quote}")
    return 0


def _matrix(task: Task, grade: bool) -> int:
    lines = list(matrix(task, _graded if grade else None))
    print(table(lines))
    return 0 if all(line.is_right for line in lines) else 1


def _graded(task: Task, folder: Path) -> Grade:
    from graders.base import GradeRequest  # noqa: PLC0415 - only where something is executed
    from graders.pipeline import RefereeGrader  # noqa: PLC0415

    rehearsed = task.interface.framework == "torch"  # on a CPU nothing of such a task is timed
    request = GradeRequest(task, folder, tier="quick", correctness_only=rehearsed)
    return RefereeGrader().grade(request)


if __name__ == "__main__":
    sys.exit(main())
