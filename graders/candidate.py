"""One submission under grading: its world, its entry, its deadlines, and the draws it is given."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graders import launch, tensors
from graders.base import GradeRequest
from graders.buffers import room_for
from graders.builds import Built, packed
from graders.entry import Entry, find_entry
from graders.errors import SubmissionFailed
from graders.launch import World
from graders.reading import parse
from graders.referee import WorkerSession
from graders.surroundings import packages_of
from tasks.loader import load_reference
from tasks.spec import Shape, Task
from tasks.tensors import Reference
from transcripts.words import GradeResult

Arrays = Mapping[str, np.ndarray]
SMOKE_SEED = 1  # public: what is drawn from it tells a submission nothing


@dataclass(frozen=True)
class Draw:
    """The inputs of one sequence of calls."""

    params: Mapping[str, Any]
    calls: Sequence[Arrays]


@dataclass(frozen=True)
class Candidate:
    """What every phase needs. ``deadline`` (monotonic) bounds the whole grade."""

    task: Task
    reference: Reference
    place: World
    entry: Entry
    device: str
    deadline: float
    built: Built = field(default_factory=Built)

    @property
    def rehearsed(self) -> bool:
        """On a CPU a task of tensors is tried at its smoke shapes: scored ones take hours there."""
        return self.device == "cpu" and self.task.interface.framework == "torch"

    @property
    def timed_shapes(self) -> tuple[Shape, ...]:
        """The shapes that are timed, or whose times are looked at."""
        return self.task.smoke if self.rehearsed else self.task.shapes

    def session(self, core: int = -1) -> WorkerSession:
        """A fresh worker with the submission imported. Raises SubmissionFailed, GraderVoid."""
        self.build()
        return self._imported(core)

    def build(self) -> None:
        """The submission's one build, before its first worker. Raises as `session` does."""
        self.built.once(self._build)

    def _build(self) -> int | None:
        with self._imported() as session:
            if self.device != "cpu":  # where kernels are compiled at the first call
                self._smoke(session)
            return packed(session)

    def _smoke(self, session: WorkerSession) -> None:
        """One call at the public seed, for what it compiles; the cases judge what it gives."""
        shape, limits = (*self.task.smoke, *self.task.shapes)[0], self.task.limits
        draw = self.draw(shape, SMOKE_SEED)
        try:
            session.setup(draw.params, limits.build_s)
            room = room_for(self.expected(draw)[0])
            session.call(draw.calls[0], room, limits.build_s)
        except SubmissionFailed as failure:
            if failure.result is GradeResult.BUILD:
                raise

    def _imported(self, core: int = -1) -> WorkerSession:
        limits, interface = self.task.limits, self.task.interface
        session = WorkerSession(self.place, limits.memory_bytes, self.deadline, core, self.device)
        try:
            session.build(
                self.entry,
                interface.outputs,
                self.device,
                limits.build_s,
                interface,
                self.built.fds,
            )
        except BaseException:
            session.close()
            raise
        return session

    def draw(self, shape: Shape, seed: str | int) -> Draw:
        """Inputs of a shape from a seed, on the host; a text is one that nobody can guess.

        A plan replays on the same kind of device only: each has a generator of its own.
        """
        drawn = number(seed) if isinstance(seed, str) else seed
        sized, make = {**shape.dims, "dtype": shape.dtype}, self.reference.make_inputs
        if not tensors.works_on(self.reference, self.device):
            made = make(sized, drawn)
            return Draw(made["params"], made["calls"])
        made = make(sized, drawn, device="cuda")
        return Draw(made["params"], [_each(tensors.to_host, call) for call in made["calls"]])

    def expected(self, draw: Draw) -> Sequence[Arrays]:
        """The reference's outputs, from the referee's own copy of the inputs.

        On a GPU it works there where it can; tensors in give tensors out.
        """
        params, calls = dict(draw.params), list(draw.calls)
        if not tensors.works_on(self.reference, self.device):
            outputs: Sequence[Arrays] = self.reference.reference(params, calls)
            return outputs
        on_device = [_each(tensors.to_device, call) for call in calls]
        found = self.reference.reference(params, on_device)
        if all(tensors.is_tensor(array) for array in calls[0].values()):
            return list(found)
        return [_each(tensors.to_host, outputs) for outputs in found]

    def check_time(self) -> None:
        """Raises SubmissionFailed when the grade's whole time is spent."""
        if time.monotonic() > self.deadline:
            raise SubmissionFailed(
                GradeResult.TIMEOUT, f"the whole grade took more than {self.task.limits.total_s} s"
            )


@contextmanager
def candidate_of(request: GradeRequest) -> Iterator[Candidate]:
    """The submission in a world of its own. Raises SubmissionFailed, GraderVoid, TaskError."""
    task = request.task
    entry = entry_of(request)
    reference = load_reference(task)
    adapter = task.folder / "public" / "adapter.py"
    packages = packages_of(task, request.device)
    deadline = time.monotonic() + task.limits.total_s
    with launch.world(adapter, request.submission, request.isolation, packages) as place:
        candidate = Candidate(task, reference, place, entry, request.device, deadline)
        try:
            yield candidate
        finally:
            candidate.built.close()


def entry_of(request: GradeRequest) -> Entry:
    """Where the submission's callables are. Raises SubmissionFailed: ``empty`` or ``import``."""
    if not launch.submission_files(request.submission):
        raise SubmissionFailed(GradeResult.EMPTY, "no file was handed in")
    entry = find_entry(request.task, request.submission)
    if entry is None:
        raise SubmissionFailed(GradeResult.IMPORT, _no_entry(request))
    return entry


def _no_entry(request: GradeRequest) -> str:
    interface = request.task.interface
    file = request.submission / interface.file
    if file.is_file() and parse(file) is None:
        return f"{interface.file} is no Python that can be parsed"
    wanted = ", ".join(f"`{entry.name}`" for entry in interface.entries if not entry.optional)
    return f"no file offers {wanted}; the prompt asks for them in {interface.file}"


def _each(change: Callable[[Any], Any], arrays: Arrays) -> Arrays:
    return {name: change(array) for name, array in arrays.items()}


def number(seed: str) -> int:
    """A 63-bit integer for generators, from a text seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1
