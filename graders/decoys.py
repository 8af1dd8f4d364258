"""Kernels for show: what an output is worth when the submission's own kernels do nothing.

A fresh worker takes the authored kernels out before it imports the submission
(``graders.worker.noops``); kernels in files of the submission are emptied in a copy of its world.
Then the outputs must be wrong, or the call must fail. If they are right, other code does the work.

Nothing is concluded where the kernel that does most of the work could not be taken out, or where
the changed submission cannot be built: no kernel, no evidence.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graders.buffers import room_for
from graders.candidate import Candidate, Draw
from graders.closeness import compare_all
from graders.errors import SubmissionFailed, readable
from graders.kernel_names import unqualified
from graders.launch import changed_world
from graders.ledger import MAX_CALLS, main_kernel
from graders.referee import WorkerSession
from graders.worker.cuda_text import emptied
from tasks.spec import Shape
from transcripts.records import CheckResult, Ledger

CHECK, MECHANISM = "kernels taken out", "language:decoy-kernel"
ARM_S = 60.0  # imports of torch and Triton
_EMPTIED = (".cu", ".cuh", ".h", ".hpp", ".inl")
_NAMES = 200


def noop_kernels(candidate: Candidate, seed: str, ledger: Ledger, shape: Shape) -> CheckResult:
    """Whether outputs of ``shape`` need the authored kernels of its ``ledger``. Raises GraderVoid.

    A passed check says that they do; a failed one names kernels that run for show.
    """
    main = main_kernel(ledger)
    if main is None:
        return _result(None, "authored kernels do not do most of the work")
    draw = candidate.draw(shape, f"{seed}/noop")
    with changed_world(candidate.place, _empty_kernels) as place:
        try:
            session = _disarmed(replace(candidate, place=place))
        except SubmissionFailed as failure:
            return _result(None, f"it does not build without its kernels: {failure}")
        with session:
            wrong = _wrong(session, candidate, draw)
            taken = _taken(session)
    evidence = {"kernel": main.name[:100], "taken": dict(taken), "outcome": wrong or "right"}
    if unqualified(main.name) not in taken:
        return _result(None, f"`{main.name[:100]}` could not be taken out", evidence)
    if wrong:
        return _result(True, "", evidence)
    told = f"the outputs are right although `{main.name[:100]}` did nothing"
    return _result(False, told, evidence)


def _disarmed(candidate: Candidate) -> WorkerSession:
    """A worker that has imported the submission with its kernels taken out."""
    task, limits = candidate.task, candidate.task.limits
    session = WorkerSession(
        candidate.place, limits.memory_bytes, candidate.deadline, device=candidate.device
    )
    try:
        session.ask({"op": "profile", "noop": "arm"}, ARM_S)
        outputs, pack = task.interface.outputs, candidate.built.fds
        args = (candidate.entry, outputs, candidate.device, limits.build_s, task.interface, pack)
        session.build(*args)
    except BaseException:
        session.close()
        raise
    return session


def _wrong(session: WorkerSession, candidate: Candidate, draw: Draw) -> str:
    """What is wrong with the outputs; empty when nothing is."""
    limits = candidate.task.limits
    expected = candidate.expected(draw)
    try:
        session.setup(draw.params, limits.build_s)
        for inputs, wanted in [*zip(draw.calls, expected, strict=True)][:MAX_CALLS]:
            answer = session.call(inputs, room_for(wanted), limits.build_s)
            for close in compare_all(candidate.task, None, answer.outputs, wanted, inputs):
                if not close.passed:
                    return f"{close.leaf}: {close.detail}"[:300]
    except SubmissionFailed as failure:
        return f"{failure.result}: {failure}"[:300]
    return ""


def _taken(session: WorkerSession) -> Mapping[str, int]:
    """What the worker says to have taken out, by unqualified name: a claim."""
    if not session.usable:
        return {}
    try:
        answer: Any = session.ask({"op": "profile", "noop": "report"}, ARM_S).get("taken")
    except SubmissionFailed:
        return {}
    if not isinstance(answer, dict) or len(answer) > _NAMES:
        return {}
    counts = {readable(str(name)[:_NAMES]): n for name, n in answer.items() if type(n) is int}
    return {unqualified(name): min(abs(n), 1 << 31) for name, n in counts.items()}


def _empty_kernels(submission: Path) -> None:
    """Take the bodies of the kernels out of its CUDA files."""
    for path in submission.rglob("*"):
        if path.suffix in _EMPTIED and path.is_file():
            text, names = emptied(path.read_bytes().decode("utf-8", "surrogateescape"))
            if names:
                path.chmod(0o644)
                path.write_bytes(text.encode("utf-8", "surrogateescape"))


def _result(
    passed: bool | None, detail: str, evidence: Mapping[str, Any] | None = None
) -> CheckResult:
    return CheckResult(
        check=CHECK,
        passed=passed,
        mechanism=MECHANISM,
        detail=readable(detail)[:1000],
        evidence=dict(evidence or {}),
    )
