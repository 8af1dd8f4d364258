"""Does this machine still measure as it did? Asked before a batch of grades.

One small kernel of our own a language (``graders/qualifying``) is built, run and timed where
submissions are: in a worker, on the same interpreter, tools and device. It must build, be right,
and take as long as it usually does here; else nothing that this machine would say of a submission
could be believed, and ``qualify`` raises GraderVoid with the reason.

*Usual* is what past qualifications of this device took, with the same driver, tools and kernel
(``qualifications.json`` of the user's cache folder): the median, and around it four times the
spread (1.4826 x median absolute deviation, a standard deviation of normal noise), at least
``FLOOR``. The first ``LEAST`` only record. A time outside is taken again, ``TRIES`` in all, and is
not recorded: a machine that has changed for good says so until its history is deleted.
"""

import hashlib
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from graders import gpu_rules, machine, remembered
from graders.base import GradeRequest
from graders.buffers import room_for
from graders.candidate import Candidate, candidate_of
from graders.closeness import compare_all
from graders.errors import GraderVoid, SubmissionFailed
from graders.referee import WorkerSession
from graders.timing import turn_name
from sandboxes.errors import SandboxError
from sandboxes.lease import lease
from tasks.errors import TaskError
from tasks.loader import read_task, submission_dir

FILE = "qualifications.json"
LANGUAGES = {"cpu": ("numpy", "c"), "cuda": ("triton", "cuda_raw")}
LEAST = 3  # past times, below which there is no interval
KEPT = 50  # past times that are remembered
TRIES = 3
FLOOR = {"cpu": 1.0, "cuda": 0.10}
"""Least half-width of the interval, as a share of the median. A GPU's kernel repeats within 2%; a
core that shares its memory with others does not, and only a breakdown should show there."""

_TASK = Path(__file__).parent / "qualifying" / "scaled-add"
_SPREADS = 4.0
_SEED = 20


@dataclass(frozen=True)
class Usual:
    """What a kernel took in the past. Milliseconds."""

    median_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Qualified:
    """One language that works."""

    language: str
    build_s: float  # start of the worker and import included
    milliseconds: float  # of one launch
    past: int  # qualifications before this one
    usual: Usual | None  # None while there are fewer than ``LEAST``

    @property
    def drift(self) -> float | None:
        """How much slower than usual, as a share: 0.05 is 5% slower."""
        return self.milliseconds / self.usual.median_ms - 1 if self.usual else None


@dataclass(frozen=True)
class Qualification:
    """A device on which grades can be measured now."""

    device: str  # "cpu" or a GPU's UUID
    languages: tuple[Qualified, ...]
    seconds: float

    def __str__(self) -> str:
        """One line for people."""
        told = ", ".join(f"{found.language} {_told(found)}" for found in self.languages)
        return f"{self.device} qualifies: {told} ({self.seconds:.0f} s)"


def qualify(device: str, isolation: str, languages: Sequence[str] | None = None) -> Qualification:
    """Build, check and time a kernel a language; takes the device's lease while it measures.

    ``device`` is "cpu", a GPU's UUID, or "cuda" where there is one only; ``languages`` are by
    default all of that kind of device. Raises GraderVoid: why, and what to do.
    """
    started = time.monotonic()
    device = machine.resolved(device)
    wanted = languages if languages is not None else LANGUAGES[_kind(device)]
    found = tuple(_qualified(language, device, isolation) for language in wanted)
    return Qualification(device, found, time.monotonic() - started)


def usual(past: Sequence[float], floor: float) -> Usual | None:
    """The interval of the times so far, in milliseconds."""
    if len(past) < LEAST:
        return None
    middle = statistics.median(past)
    deviation = statistics.median(abs(value - middle) for value in past)
    margin = max(_SPREADS * 1.4826 * deviation, floor * middle)
    return Usual(middle, middle - margin, middle + margin)


def _qualified(language: str, device: str, isolation: str) -> Qualified:
    try:
        return _measured(language, device, isolation)
    except (SubmissionFailed, SandboxError, TaskError) as error:
        raise GraderVoid(
            f"{_not_qualified(language, device)}: our own kernel fails: {error}; "
            "`orchestrator doctor` says what is missing"
        ) from error


def _measured(language: str, device: str, isolation: str) -> Qualified:
    task = read_task(_TASK)
    folder = submission_dir(task, language)
    request = GradeRequest(task, folder, isolation=isolation, device=device)
    started = time.monotonic()
    with candidate_of(request) as candidate, candidate.session(machine.worker_core()) as session:
        build_s = time.monotonic() - started
        key = _key(language, device, folder)
        past = _history(key)
        expected = usual(past, FLOOR[_kind(device)])
        with _turn(session, device):
            taken = _time(candidate, session, expected)
    if expected and not expected.low_ms <= taken <= expected.high_ms:
        raise GraderVoid(_drifted(language, device, taken, expected))
    remembered.store(FILE, {key: [*past, taken][-KEPT:]})
    return Qualified(language, round(build_s, 3), taken, len(past), expected)


@contextmanager
def _turn(session: WorkerSession, device: str) -> Iterator[None]:
    """The device for ourselves, idle but for the worker."""
    with ExitStack() as stack:
        stack.enter_context(lease(turn_name(device)))
        stack.enter_context(machine.apart_from_worker())
        machine.wait_until_idle()
        readings = gpu_rules.Readings()
        stack.enter_context(gpu_rules.watched(device, True, readings, (session.pid,)))
        yield


def _time(candidate: Candidate, session: WorkerSession, expected: Usual | None) -> float:
    """Milliseconds of a launch; again while they are unusual. Raises SubmissionFailed."""
    taken = 0.0
    for n in range(TRIES):
        taken = _call(candidate, session, _SEED + n)
        if expected is None or expected.low_ms <= taken <= expected.high_ms:
            break
        machine.wait_until_idle()
    return taken


def _call(candidate: Candidate, session: WorkerSession, seed: int) -> float:
    """One checked call; the milliseconds that it tells. Raises SubmissionFailed, GraderVoid."""
    task = candidate.task
    draw = candidate.draw(task.shapes[0], seed)
    wanted = candidate.expected(draw)[0]
    session.setup(draw.params, task.limits.call_s)
    answer = session.call(draw.calls[0], room_for(wanted), task.limits.call_s)
    outputs = dict(answer.outputs)
    taken = float(outputs.pop("milliseconds"))
    for close in compare_all(task, None, outputs, {"y": wanted["y"]}, draw.calls[0]):
        if not close.passed:
            raise SubmissionFailed(close.word, f"{close.leaf}: {close.detail}")
    if not 0 < taken < math.inf:
        raise GraderVoid(f"our own kernel took {taken} ms, which is no time")
    return taken


def _history(key: str) -> list[float]:
    """Past times; a bad entry counts as none."""
    found = remembered.load(FILE).get(key)
    if not isinstance(found, list):
        return []
    return [ms for ms in found if isinstance(ms, float) and 0 < ms < math.inf]


def _key(language: str, device: str, folder: Path) -> str:
    """Device and language, and a digest of kernel, adapter, driver and tools."""
    total = hashlib.sha256()
    for path in (*sorted(folder.glob("*.py")), _TASK / "public" / "adapter.py"):
        total.update(path.read_bytes())
    drivers = [gpu.driver for gpu in machine.gpus() if gpu.uuid == device]
    total.update(repr((drivers, machine.versions(device))).encode())
    name = machine.cpu_name() if device == "cpu" else device
    return f"{name} {language} {total.hexdigest()[:16]}"


def _kind(device: str) -> str:
    return "cpu" if device == "cpu" else "cuda"


def _not_qualified(language: str, device: str) -> str:
    return f"this machine does not qualify to grade {language} on {device} now"


def _drifted(language: str, device: str, taken: float, expected: Usual) -> str:
    return (
        f"{_not_qualified(language, device)}: our own kernel takes {taken:.4g} ms, usually "
        f"{expected.low_ms:.4g} to {expected.high_ms:.4g} ms; look for other work, heat, a power "
        f"cap or changed clocks, or, if it is to stay so, delete {remembered.path_of(FILE)}"
    )


def _told(found: Qualified) -> str:
    drift = "" if found.drift is None else f", {found.drift:+.1%}"
    return f"{found.milliseconds:.4g} ms{drift}"
