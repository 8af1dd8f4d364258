"""A task of one function, grades and events built by hand, and audits of source snippets."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from graders.auditor.pipeline import audit
from tasks.spec import Task
from transcripts.events import Event, ToolCall, ToolCallStarted, ToolResult
from transcripts.records import (
    Audit,
    CheckResult,
    DeviceState,
    Fingerprint,
    Grade,
    ShapeCorrectness,
)
from transcripts.words import GradeResult

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """`solve(x, w)`: float32, NumPy or C, no torch, no `numpy.argpartition`."""
    return Task.model_validate(
        {
            "name": "double",
            "version": 1,
            "scoring_version": 1,
            "title": "t",
            "summary": "s",
            "devices": ("cpu",),
            "languages": ("numpy", "c"),
            "regime": "memory",
            "headline": "rubric",
            "shapes": ({"name": "big", "dims": {"N": 4096}},),
            "smoke": ({"name": "small", "dims": {"N": 4}},),
            "tolerance": {"float32": {"atol": 1e-5, "rtol": 1e-5}},
            "gate": {"rms_ratio": {"float32": 1e-5}},
            "work": {"flops": "N", "bytes": "N"},
            "interface": {
                "file": "solution.py",
                "entries": ({"name": "solve", "accepts": ("solve",)},),
                "outputs": ("y",),
            },
            "forbidden_imports": ("torch", "scipy"),
            "forbidden_calls": ("numpy.argpartition",),
            "folder": tmp_path,
            "digest": "0" * 64,
        }
    )


@pytest.fixture
def audited(task: Task, tmp_path: Path) -> Callable[..., Audit]:
    """Audit `solution.py` with this text (or a folder of files) on the given evidence."""

    def run(
        source: str | Mapping[str, str | bytes],
        grades: Sequence[Grade] = (),
        events: Sequence[Event] | None = None,
        canaries: Any = None,
    ) -> Audit:
        files = {"solution.py": dedent(source)} if isinstance(source, str) else source
        folder = tmp_path / "submission"
        for path, content in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else dedent(content).encode()
            target.write_bytes(data)
        folder.mkdir(exist_ok=True)
        return audit(
            task,
            folder,
            grades=grades,
            events=events,
            attempt_id="a",
            attempt_seal=None,
            canaries=canaries,
        )

    return run


def graded(
    result: str = "pass",
    *,
    failed: Sequence[str] = (),
    passed: Sequence[str] = (),
    unrun: Sequence[str] = (),
    mode: str = "isolated",
    correctness: Sequence[ShapeCorrectness] = (),
) -> Grade:
    """A grade with probes of these mechanisms."""
    outcomes = [(failed, False), (passed, True), (unrun, None)]
    return Grade(
        grade_id=f"g-{mode}-{result}",
        attempt_id="a",
        attempt_seal=None,
        submission_digest="5" * 64,
        task="double",
        task_digest="0" * 64,
        checks_digest="c",
        timing_digest="t",
        toolchain_digest="t",
        scoring_version=1,
        mode=mode,  # type: ignore[arg-type]
        tier="full",
        isolation="process",
        result=GradeResult(result),
        seed="1",
        device=DeviceState(kind="cpu", name="cpu", hardware="cpu:x"),
        correctness=tuple(correctness),
        checks=tuple(
            CheckResult(check=f"probe of {name}", passed=outcome, mechanism=name, detail="seen")
            for names, outcome in outcomes
            for name in names
        ),
        fingerprint=Fingerprint(
            product_version="0",
            code_digest="0",
            python="3",
            platform="linux",
            kernel="6",
            cpu="x",
            cores=2,
            memory_bytes=1,
            host="h",
            sandbox="none",
        ),
        started_at=AT,
        seconds=1.0,
    )


def called(name: str, result: str = "", exit_code: int | None = 0, **arguments: str) -> list[Event]:
    """One tool call and what came back. Numbers are given by `numbered`."""
    call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    status = "ok" if exit_code in (0, None) else "error"
    return [
        ToolCallStarted(n=0, at=AT, offset_s=0, step=0, call=call),
        ToolResult(
            n=0,
            at=AT,
            offset_s=0,
            step=0,
            call_id="c",
            name=name,
            status=status,  # type: ignore[arg-type]
            text=result,
            exit_code=exit_code,
        ),
    ]


def numbered(*steps: list[Event]) -> list[Event]:
    """The steps as one transcript."""
    events = []
    for index, step in enumerate(steps):
        for event in step:
            change: dict[str, object] = {"n": len(events)}
            if isinstance(event, ToolCallStarted):
                change["call"] = event.call.model_copy(update={"id": f"c{index}"})
            elif isinstance(event, ToolResult):
                change["call_id"] = f"c{index}"
            events.append(event.model_copy(update=change))
    return events


@pytest.fixture
def grade() -> Callable[..., Grade]:
    """Builds grades."""
    return graded


@pytest.fixture
def call() -> Callable[..., list[Event]]:
    """Builds tool steps."""
    return called


@pytest.fixture
def transcript() -> Callable[..., list[Event]]:
    """Numbers steps."""
    return numbered
