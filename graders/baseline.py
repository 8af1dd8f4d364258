"""The frozen baseline of a task, timed in the same run by a worker that runs our own code.

``public/baseline.py`` is what an honest person would write in plain framework code. It is handed
to the same timing as a submission, with the interface's file name, so that a speed-up compares two
figures of one method on one device in one turn. It is ours, so its events are believed.
"""

import shutil
import statistics
from dataclasses import replace
from pathlib import Path

from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.errors import GraderVoid, SubmissionFailed
from graders.pacing.timer import can_be_paced, time_paced
from graders.timing import time_shapes
from sandboxes.scratch import Scratch

_measured: dict[tuple[str, ...], dict[str, float]] = {}
"""By task, device, isolation, tier and mode: once in a process that grades, as for ceilings. One
that was timed beside others, in a session's run, does not stand beside a figure taken alone."""


def baseline_ms(request: GradeRequest) -> dict[str, float]:
    """Milliseconds of each scored shape; empty where the task ships none. Raises GraderVoid."""
    source = request.task.folder / "public" / "baseline.py"
    if not source.is_file():
        return {}
    where = request.task.digest, request.device, request.isolation
    key = (*where, request.tier, request.mode)
    if key not in _measured:
        _measured[key] = _measure(request, source)
    return _measured[key]


def _measure(request: GradeRequest, source: Path) -> dict[str, float]:
    with Scratch("baseline") as scratch:
        folder = scratch.folder()
        shutil.copyfile(source, folder / request.task.interface.file)
        asked = replace(request, submission=folder)
        try:
            return _timed(asked)
        except SubmissionFailed as error:
            raise GraderVoid(f"the baseline of {request.task.name} failed: {error}") from error


def _timed(request: GradeRequest) -> dict[str, float]:
    with candidate_of(request) as candidate:
        if not can_be_paced(candidate):
            found = time_shapes(candidate, candidate.timed_shapes, request.tier)
            return {samples.shape: samples.summary().median_ms for samples in found}
        paced = time_paced(candidate, candidate.timed_shapes, request.tier)
        return {samples.shape: statistics.median(samples.events_ms) for samples in paced}
