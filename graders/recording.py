"""Make the record of a grade from what was found."""

import hashlib
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from graders import launch, machine
from graders.base import GradeRequest
from graders.correctness import Correctness, summarise
from graders.gpu_rules import Readings
from graders.timing import Samples
from transcripts.keys import new_id
from transcripts.records import (
    CheckResult,
    FileDigest,
    Grade,
    ItemMeasurement,
    Lease,
    Ledger,
    ShapeCorrectness,
    ShapeTiming,
    digest_of,
)
from transcripts.words import GradeResult

CHECKS = (
    *("correctness", "closeness", "differences", "hints"),
    *("probes", "probe_calls", "probe_values", "probe_traces", "worker/probing"),
    *("ledger", "kernel_names", "survey", "decoys"),
    *("worker/profiling", "worker/noops", "worker/cuda_text"),
    *("items", "selftest", "entry", "offers", "reading", "sources", "language", "failures"),
)
TIMING = (
    *("timing", "machine", "trusted_noop", "trusted_ceiling"),
    *("gpu_state", "gpu_rules", "gpu_ceiling", "trusted_gpu_ceiling", "fellows"),
    *("performance", "baseline", "roofline", "pacing"),
    *("worker/pacer", "worker/digests", "worker/device_memory"),
)
BOTH = (
    *("worker/main", "worker/arrays", "worker/wire", "worker/refusals", "worker/caches"),
    *("referee", "conversation", "channel", "buffers", "weights", "tensors", "builds"),
    *("processes", "holding", "launch", "running", "printed", "surroundings"),
    *("candidate", "pipeline"),
)
"""Modules whose change makes other measurements, of what is right, of time, or of either."""


@dataclass
class Gathered:
    """What a grade has come to so far."""

    result: GradeResult = GradeResult.PASS
    message: str = ""
    language: str | None = None
    correctness: Correctness = field(default_factory=Correctness)
    timed_failure: tuple[ShapeCorrectness, ...] = ()
    samples: list[Samples] = field(default_factory=list)
    checks: list[CheckResult] = field(default_factory=list)
    items: list[ItemMeasurement] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)  # milliseconds by shape
    ledgers: list[Ledger] = field(default_factory=list)
    ceilings: machine.Ceilings | None = None
    readings: Readings = field(default_factory=Readings)
    lease: Lease | None = None

    def timing(self, samples: Samples) -> ShapeTiming:
        """The record of one shape, with the baseline's figure beside it."""
        beside = {"baseline_ms": self.baseline.get(samples.shape)}
        return samples.summary().model_copy(update=beside)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a part."""
        started = time.monotonic()
        try:
            yield
        finally:
            spent = self.phases.get(name, 0.0) + time.monotonic() - started
            self.phases[name] = round(spent, 3)

    def fail(self, word: GradeResult, message: str) -> None:
        """The first failure stays, but tampering replaces any; a pass changes nothing."""
        if word is GradeResult.PASS:
            return
        first = self.result is GradeResult.PASS
        if first or (word is GradeResult.TAMPERED and self.result is not word):
            self.result, self.message = word, message

    def void(self, why: str) -> None:
        """Our own failure: whatever was found, no word about the submission is left."""
        self.result, self.message = GradeResult.VOID, why


@dataclass(frozen=True)
class Measurement:
    """When and how it was measured."""

    seed: str
    started_at: datetime
    seconds: float
    load_before: float


def record(request: GradeRequest, found: Gathered, how: Measurement) -> Grade:
    """The grade."""
    task = request.task
    isolation = isolation_of(request)
    return Grade(
        grade_id=new_id(),
        attempt_id=request.attempt_id,
        attempt_seal=request.attempt_seal,
        submission_digest=submission_digest(request.submission),
        task=task.name,
        task_digest=task.digest,
        checks_digest=machine.code_digest(*_files(*CHECKS, *BOTH)),
        timing_digest=machine.code_digest(*_files(*TIMING, *BOTH)),
        toolchain_digest=digest_of(dict(machine.versions(request.device))),
        scoring_version=task.scoring_version,
        mode=request.mode,
        tier=request.tier,
        isolation=isolation,
        result=found.result,
        reason=found.message if found.result is not GradeResult.PASS else "",
        message=_line(found),
        reproduce=_reproduce(request, how.seed),
        language=found.language,
        seed=how.seed,
        device=machine.device_state(
            request.device, found.ceilings, how.load_before, found.readings
        ),
        lease=found.lease,
        correctness=(*summarise(found.correctness.runs), *found.timed_failure),
        timings=tuple(map(found.timing, found.samples)),
        checks=tuple(found.checks),
        items=tuple(found.items),
        ledgers=tuple(found.ledgers),
        phases=found.phases,
        log_tail=found.correctness.log_tail,
        fingerprint=machine.fingerprint(isolation, request.device),
        started_at=how.started_at,
        seconds=how.seconds,
    )


def isolation_of(request: GradeRequest) -> str:
    """``auto`` is bubblewrap: less is on request only."""
    return "bubblewrap" if request.isolation == "auto" else request.isolation


def submission_digest(folder: Path) -> str:
    """The digest of the file list, equal to that of the attempt's own record of its files."""
    files = [
        FileDigest(
            path=path,
            size_bytes=file.stat().st_size,
            sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        )
        for path, file in launch.submission_files(folder)
    ]
    return digest_of([file.model_dump(mode="json") for file in files])


def _files(*modules: str) -> list[str]:
    """Paths below the product's folder; a package's name stands for all its files."""
    named = (f"graders/{module}" for module in modules)
    return [name if (machine.PACKAGES / name).is_dir() else f"{name}.py" for name in named]


def _line(found: Gathered) -> str:
    if found.result is not GradeResult.PASS:
        return found.message.partition("\n")[0][:300]
    runs = len(found.correctness.runs)
    timed = f", {len(found.samples)} shapes timed" if found.samples else ""
    failed = [check.check for check in found.checks if check.passed is False]
    told = f"; failed probes: {', '.join(failed)}" if failed else ""
    return f"{runs} cases right{timed}{told}"


def _reproduce(request: GradeRequest, seed: str) -> str:
    target = request.attempt_id or request.shown_as or str(request.submission)
    words = ["python", "-m", "orchestrator", "grade", "--explain", target]
    words += [] if request.attempt_id else ["--task", request.task.name]
    words += ["--gpu", request.device] if request.device != "cpu" else []
    words += ["--only", request.only] if request.only else []
    return shlex.join([*words, "--tier", request.tier, "--seed", seed])
