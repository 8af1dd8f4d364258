"""Real records for board tests, each with everything that a test does not care about filled in."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from orchestrator.boards.evidence import AttemptEvidence, TaskVersion, Terms
from orchestrator.boards.records import CellScore
from tasks.spec import Deck, DeckCell
from transcripts.records import (
    Attempt,
    Audit,
    Budget,
    CellKey,
    DeviceState,
    Entrant,
    Fingerprint,
    Grade,
    ImportSource,
    ModelIdentity,
    Outcome,
    ShapeTiming,
)
from transcripts.words import End, GradeResult, Verdict

TASKS = ("kv-cache", "layernorm-backward", "fused-softmax-topk")
DIGESTS = {task: f"{i}" * 64 for i, task in enumerate(TASKS, 1)}
CPU = "cpu:AMD EPYC 9654"
START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def entrant(name="oracle", **changes):
    fields = {
        "model": ModelIdentity(name=name, served_id=name, label=changes.pop("label", None)),
        "route": "scripted",
        "harness": "loop",
        "harness_version": "1",
        "budget": Budget(),
    }
    return Entrant(**{**fields, **changes})


def fingerprint(sandbox="bubblewrap"):
    return Fingerprint(
        product_version="0.1.0",
        code_digest="c" * 64,
        python="3.11",
        platform="linux",
        kernel="6",
        cpu="AMD EPYC 9654",
        cores=2,
        memory_bytes=1 << 33,
        host="h" * 16,
        sandbox=sandbox,
    )


def attempt(number, who, task="kv-cache", *, end=End.SUBMITTED, digest=None, **changes):
    sandbox = changes.pop("sandbox", "bubblewrap")
    fields = {
        "attempt_id": f"0198c0de-{number:04d}-7000-8000-000000000000",
        "cell": CellKey(
            deck="rounds",
            task=task,
            task_digest=digest or DIGESTS[task],
            entrant_name=who.name,
            entrant_digest=who.digest,
        ),
        "entrant": who,
        "fingerprint": fingerprint(sandbox),
        "started_at": START + timedelta(minutes=number),
        "outcome": Outcome(end=end) if end else None,
    }
    return Attempt(**{**fields, **changes})


def imported(number, who, task="kv-cache"):
    source = ImportSource(dialect="pi", file_name="a.jsonl", sha256="0" * 64)
    return attempt(number, who, task, origin="imported", source=source, fingerprint=None)


def timing(milliseconds, spread=0.01):
    return ShapeTiming(
        shape="only",
        method="referee_clock",
        certified=True,
        calls=20,
        median_ms=milliseconds,
        ci_low_ms=milliseconds * (1 - spread),
        ci_high_ms=milliseconds * (1 + spread),
        min_ms=milliseconds * 0.9,
    )


def grade(of, number=1, *, result=GradeResult.PASS, ms=10.0, hardware=CPU, **changes):
    spread = changes.pop("spread", 0.01)
    fields = {
        "grade_id": f"0198d000-{number:04d}-7000-8000-000000000000",
        "attempt_id": of.attempt_id,
        "attempt_seal": seal_of(of),
        "submission_digest": "5" * 64,
        "task": of.cell.task,
        "task_digest": DIGESTS[of.cell.task],
        "checks_digest": "6" * 64,
        "timing_digest": "7" * 64,
        "toolchain_digest": "8" * 64,
        "scoring_version": 1,
        "mode": "isolated",
        "tier": "full",
        "isolation": "bubblewrap",
        "result": result,
        "seed": "s",
        "device": DeviceState(kind="cpu", name="AMD EPYC 9654", hardware=hardware),
        "timings": (timing(ms, spread),) if result is GradeResult.PASS else (),
        "fingerprint": fingerprint(),
        "started_at": START + timedelta(hours=1, minutes=number),
        "seconds": 1.0,
    }
    return Grade(**{**fields, **changes})


def audit(of, number=1, *, verdict=Verdict.CLEAN, **changes):
    fields = {
        "audit_id": f"0198e000-{number:04d}-7000-8000-000000000000",
        "attempt_id": of.attempt_id,
        "attempt_seal": seal_of(of),
        "submission_digest": "5" * 64,
        "task": of.cell.task,
        "task_digest": DIGESTS[of.cell.task],
        "grade_ids": (),
        "auditor_version": "1",
        "coverage": ("source",),
        "verdict": verdict,
        "rule": "r",
        "summary": f"it is {verdict}",
        "at": START + timedelta(hours=2, minutes=number),
    }
    return Audit(**{**fields, **changes})


def seal_of(of):
    return f"seal-of-{of.attempt_id}"


def evidence(of, *, grades=None, audits=None, problems=()):
    """A sealed attempt, by default with one passing grade and one clean audit."""
    return AttemptEvidence(
        attempt=of,
        seal=seal_of(of),
        grades=tuple([grade(of)] if grades is None else grades),
        audits=tuple([audit(of)] if audits is None else audits),
        problems=problems,
    )


def result(number, who, task, *, ms=10.0, **changes):
    """A valid attempt with its evidence."""
    of = attempt(number, who, task)
    return evidence(of, grades=[grade(of, ms=ms, **changes)])


def inverse_time(a_grade):
    """A scorer: 100 points at 1 ms, less the slower; None for what was not timed."""
    if not a_grade.timings:
        return None
    (only,) = a_grade.timings
    return CellScore(
        value=100 / only.median_ms,
        low=100 / only.ci_high_ms,
        high=100 / only.ci_low_ms,
        milliseconds=only.median_ms,
        roofline=0.5,
    )


@pytest.fixture(scope="session")
def make():
    """Factories of real records."""
    versions = {task: TaskVersion(digest, 1) for task, digest in DIGESTS.items()}
    return SimpleNamespace(
        entrant=entrant,
        attempt=attempt,
        imported=imported,
        grade=grade,
        audit=audit,
        evidence=evidence,
        result=result,
        scorer=inverse_time,
        versions=versions,
        terms=Terms(CPU, versions),
        cpu=CPU,
        start=START,
        tasks=TASKS,
        digests=DIGESTS,
        deck=Deck(
            name="rounds",
            title="Rounds",
            score="rubric",
            canonical_hardware="cpu",
            cells=tuple(DeckCell(task=task) for task in TASKS),
        ),
    )
