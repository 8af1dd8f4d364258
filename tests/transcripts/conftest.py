import hashlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from transcripts.keys import new_id
from transcripts.records import (
    Attempt,
    Audit,
    CellKey,
    DeviceState,
    Entrant,
    Fingerprint,
    Grade,
    ModelIdentity,
)
from transcripts.store import Archive, AttemptFolder
from transcripts.words import GradeResult, Verdict

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def make_attempt(model: str = "glm-5", task: str = "kv-cache") -> Attempt:
    entrant = Entrant(
        model=ModelIdentity(name=model, served_id=model),
        route="scripted",
        harness="loop",
        harness_version="1",
    )
    cell = CellKey(
        deck="rounds",
        task=task,
        task_digest=hashlib.sha256(task.encode()).hexdigest(),
        entrant_name=entrant.name,
        entrant_digest=entrant.digest,
    )
    return Attempt(attempt_id=new_id(), cell=cell, entrant=entrant, started_at=NOW)


def make_grade(attempt: AttemptFolder, **changes: object) -> Grade:
    grade = Grade(
        grade_id=new_id(),
        attempt_id=attempt.id,
        attempt_seal=attempt.seal_digest,
        submission_digest="s",
        task="kv-cache",
        task_digest="t",
        checks_digest="c",
        timing_digest="m",
        toolchain_digest="x",
        scoring_version=1,
        mode="isolated",
        tier="quick",
        isolation="process",
        result=GradeResult.PASS,
        seed="1",
        device=DeviceState(kind="cpu", name="cpu", hardware="cpu:x"),
        fingerprint=Fingerprint(
            product_version="0",
            code_digest="d",
            python="3.11",
            platform="linux",
            kernel="6",
            cpu="x",
            cores=2,
            memory_bytes=1,
            host="h",
            sandbox="none",
        ),
        started_at=NOW,
        seconds=1.0,
    )
    return grade.model_copy(update=changes)


def make_audit(attempt: AttemptFolder) -> Audit:
    return Audit(
        audit_id=new_id(),
        attempt_id=attempt.id,
        attempt_seal=attempt.seal_digest,
        submission_digest="s",
        task="kv-cache",
        task_digest="t",
        grade_ids=(),
        auditor_version="1",
        coverage=("source",),
        verdict=Verdict.CLEAN,
        rule="nothing found",
        summary="nothing found",
        at=NOW,
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "archive", create=True)


@pytest.fixture
def live(archive: Archive) -> AttemptFolder:
    return archive.create(make_attempt())


@pytest.fixture
def attempts() -> Callable[..., Attempt]:
    return make_attempt


@pytest.fixture
def grades() -> Callable[..., Grade]:
    return make_grade


@pytest.fixture
def audits() -> Callable[..., Audit]:
    return make_audit


def run_in_child(work: Callable[[], None]) -> int:
    """Fork, run ``work``, and give the exit code: 0 done, 1 raised, -9 killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def in_child() -> Callable[[Callable[[], None]], int]:
    return run_in_child


# Every file-system call raises one of these, so killing at the k-th of them for every k walks
# through all states that a kill can leave behind.
_STEPS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def kill_at_step(wanted: int) -> None:
    """Kill this process, for good, at its ``wanted``-th file-system call from now on."""
    steps = 0

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal steps
        if event in _STEPS:
            steps += 1
            if steps == wanted:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


@pytest.fixture
def die_at_step() -> Callable[[int], None]:
    return kill_at_step
