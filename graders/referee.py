"""The referee's side of one worker: it asks, reads the clock, copies outputs, and believes nothing.

``WorkerSession`` raises ``SubmissionFailed`` for what a submission does (``graders.failures`` has
the words) and ``GraderVoid`` when no worker can be started.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from graders import launch, processes
from graders.buffers import BadLeaf, CallMemory, layout, read_outputs
from graders.channel import Channel
from graders.conversation import Conversation
from graders.entry import Entry
from graders.errors import GraderVoid, SubmissionFailed
from graders.holding import Holding
from graders.launch import World
from graders.surroundings import CUDA_BYTES
from graders.weights import sent
from graders.worker.wire import WireBroken
from tasks.spec import Interface

START_S = 30.0
COPY_BYTES = 256 << 10
"""Up to here the clock stops when the outputs have been copied. Above, copying would cost more than
stopping every process of the worker: there it stops when all are seen stopped, and copies then.
Unconfined, where a process can hide, outputs of any size are copied first."""


@dataclass(frozen=True)
class Answer:
    """What one call gave: private copies of its outputs, and the referee's time."""

    outputs: dict[str, np.ndarray]
    elapsed_ns: int  # from just before `go` until no worker could change the outputs any more
    leaves: tuple[dict[str, Any], ...]  # as the worker described them: claims
    lost_s: float = 0.0  # of a timed call: the worker could have run, but others had its core
    others_s: float = 0.0  # of a timed call: what others spent on the worker's core, in ticks


class WorkerSession:
    """One worker process from start to kill. Use as a context manager."""

    def __init__(
        self,
        place: World,
        memory_bytes: int,
        deadline: float | None = None,
        core: int = -1,
        device: str = "cpu",
    ) -> None:
        """Start it. ``deadline`` (monotonic) bounds all that follows. Raises GraderVoid."""
        self._place = place
        self._memory: CallMemory | None = None
        self._calls = 0
        self._core, self._device = core if device == "cpu" else -1, device
        self._raw_weights: Mapping[str, str] = {}
        self.given_cores = processes.cores_for(device, core)
        self._channel = Channel()
        try:
            with self._channel.of_the_worker() as its:
                self._running = launch.start(place, memory_bytes, device, *its)
        except BaseException:
            self._channel.close()
            raise
        self._running.keep_reading()
        self._root = self._running.popen.pid
        self.pid = self._await_ready()
        most_bytes = memory_bytes + (0 if device == "cpu" else CUDA_BYTES)
        ends = self._channel, self._running, self._holding
        self.talk = Conversation(*ends, most_bytes, deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def build(
        self,
        entry: Entry | None,
        outputs: tuple[str, ...],
        device: str,
        s: float,
        interface: Interface | None = None,
        pack: tuple[int, ...] = (),
    ) -> None:
        """Import the submission. ``interface`` says what its inputs and outputs are.

        ``pack`` is what compilers of its build have left, or nothing (``graders.builds``).
        """
        frame: dict[str, Any] = {"op": "build", "outputs": list(outputs), "file": ""}
        frame |= {"device": device, "names": {}, "absent": []}
        if interface is not None:
            tensors = interface.framework == "torch"
            frame |= {"written": dict(interface.written), "tensors": tensors}
            frame |= {"raw": dict(interface.raw_inputs) if tensors else {}}
            self._raw_weights = interface.raw_weights
        if entry is not None:
            file = launch.shown(self._place) / entry.file
            frame |= {"folder": str(file.parent), "file": str(file)}
            frame |= {"names": dict(entry.names), "absent": list(entry.absent)}
        self.ask(frame, s, pack)

    def setup(self, params: Mapping[str, Any], s: float, state: int = 0) -> None:
        """Begin a new sequence of calls. Arrays under ``weights`` travel as memory, not as words.

        ``state`` numbers states that are held beside each other, for paced calls.
        """
        with self._told(params) as (words, fds):
            self.ask({"op": "setup", "state": state, **words}, s, fds)

    def profile(
        self, fresh: CallMemory, params: Mapping[str, Any], frame: Mapping[str, Any], s: float
    ) -> dict[str, Any]:
        """Trace calls on ``fresh`` memory, each sequence after a setup with ``params``.

        For the frame and the answer see `graders.worker.profiling`. Raises SubmissionFailed.
        """
        self._lend(fresh)
        with self._told(params) as (words, fds):
            memory = fresh.inputs.fd, fresh.outputs.fd
            return self.ask({"op": "profile", **frame, **words}, s, (*memory, *fds))

    @contextmanager
    def _told(self, params: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
        """What a frame says of ``params``, and the descriptor of their weights, if any."""
        words = {"params": {name: given for name, given in params.items() if name != "weights"}}
        if "weights" not in params:
            yield words, ()
            return
        with sent(params["weights"], self._raw_weights, self._device) as weights:
            yield {**words, **weights.described}, (weights.fd,)

    def overwrite(self, inputs: Mapping[str, np.ndarray], room: int) -> bool:
        """New content in the memory of the last call; False when it does not fit there."""
        last = self._memory
        if last is None or last.outputs.size != room or last.placed != layout(inputs):
            return False
        last.inputs.write(last.placed, inputs)
        return True

    def go(
        self, fresh: CallMemory | None, s: float, how: Mapping[str, object] | None = None
    ) -> Answer:
        """One call, on fresh memory, or (None) again on that of the last call.

        A stopped worker is let go after the clock has started. ``how`` is what a ``call`` frame
        may say beside (see ``graders.worker.wire``).
        """
        if fresh is not None:
            self._lend(fresh)
        memory = self._memory
        assert memory is not None
        fds = (memory.inputs.fd, memory.outputs.fd) if fresh is not None else ()
        self.talk.refuse_unasked()
        self._calls += 1
        frame: dict[str, Any] = {"op": "call", "n": self._calls, "room": memory.outputs.size}
        frame |= {"inputs": list(memory.placed.leaves), **(how or {})}
        started = time.perf_counter_ns()
        answer = self.ask(frame, s, fds)
        if self._place.is_confined and memory.outputs.size > COPY_BYTES:
            elapsed = self.hold() - started
            outputs = self._copies(answer, memory)
            self._holding.let_go()
        else:
            outputs = self._copies(answer, memory)
            elapsed = time.perf_counter_ns() - started
        return Answer(outputs, elapsed, tuple(answer["outputs"]))

    def call(self, inputs: Mapping[str, np.ndarray], room: int, s: float) -> Answer:
        """One call on fresh memory."""
        return self.go(CallMemory(inputs, room), s)

    def reread(self, answer: Answer) -> dict[str, np.ndarray]:
        """The outputs of the last call as they are in shared memory now."""
        assert self._memory is not None
        return read_outputs(self._memory.outputs, [*answer.leaves])

    def changed_inputs(self, inputs: Mapping[str, np.ndarray]) -> list[str]:
        """Names of the last call's inputs that are no longer what the referee wrote."""
        assert self._memory is not None
        return self._memory.inputs.changed(self._memory.placed, inputs)

    def strays(self) -> list[processes.ProcessLine]:
        """Processes beside the worker and its launchers, zombies included."""
        pids = {*processes.below(self._root), *processes.marked(self._place.mark)}
        pids -= {self.pid, *self._launchers}
        return [line for line in processes.process_table() if line.pid in pids]

    def resident_bytes(self) -> int:
        """Private resident memory of the worker process, from the kernel."""
        return processes.resident_bytes(self.pid)

    def cores(self) -> set[int]:
        """Cores that any process of the worker may run on now."""
        return set().union(*map(processes.allowed_cores, processes.below(self._root)))

    def timed_call(self, inputs: Mapping[str, np.ndarray], room: int, s: float) -> Answer:
        """One call whose inputs are written while every process of the worker is stopped.

        In a jail all processes can be seen and stopped, so the memory of the last call serves
        again, which keeps the price of mapping it out of the figure. Unconfined, a process may
        hide, so each call has fresh memory, which nobody can read before *go*.
        """
        self.hold()
        again = self._place.is_confined and self.overwrite(inputs, room)
        fresh = None if again else CallMemory(inputs, room)
        self._holding.take()
        busy_s = processes.core_busy_s(self._core)
        answer = self.go(fresh, s)
        self.hold()
        with self._one_core():
            window = self._holding.take_call()
        others_s = processes.core_busy_s(self._core) - busy_s - window.cpu_s
        return replace(answer, lost_s=window.lost_s, others_s=others_s if self._core >= 0 else 0.0)

    def hold(self) -> int:
        """Stop every process of the worker until it is asked again; the `perf_counter_ns` of it.

        Raises SubmissionFailed when one escapes, or when they spent more than the core they have.
        """
        with self._one_core():
            return self._holding.stop()

    @contextmanager
    def _one_core(self) -> Iterator[None]:
        """A worker that has escaped its stops or its core gives no more figures."""
        try:
            yield
        except SubmissionFailed:
            self.give_up()
            raise

    def let_go(self) -> None:
        """Let run on what `hold` has stopped."""
        self._holding.let_go()

    @property
    def log_tail(self) -> str:
        """The end of what was printed."""
        return self._running.log.text

    def close(self) -> None:
        """Kill the whole tree. Idempotent."""
        self._running.kill()
        self._channel.close()
        self._release()

    def _await_ready(self) -> int:
        """Wait for the first frame, while only our own code runs in there."""
        try:
            self._channel.answer(time.monotonic() + START_S)
        except WireBroken as error:
            self.close()
            raise GraderVoid(f"the worker did not start: {error}; {self.log_tail}") from error
        line = processes.below(self._root)
        processes.pin(line, self.given_cores)
        self._launchers = frozenset(line[:-1])
        counted_s = self._running.group.cpu_s if self._running.group is not None else None
        self._holding = Holding(
            self._root, self._launchers, one_core=self._core >= 0, counted_s=counted_s
        )
        return line[-1]

    def ask(self, frame: dict[str, Any], s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send a frame and wait for its answer. Raises SubmissionFailed."""
        return self.talk.ask(frame, s, fds)

    @property
    def usable(self) -> bool:
        """False once its answers can no longer be matched to questions."""
        return self.talk.usable

    def give_up(self) -> None:
        """Ask it nothing more: nobody knows what it is doing."""
        self.talk.usable = False

    def _copies(self, answer: dict[str, Any], held: CallMemory) -> dict[str, np.ndarray]:
        try:
            return read_outputs(held.outputs, answer.get("outputs"))
        except BadLeaf as error:
            raise self.talk.lost(f"a forged answer: {error}") from error

    def _lend(self, fresh: CallMemory) -> None:
        """Let the next frame bring this memory in place of the last call's."""
        self._release()
        self._memory, self.talk.lent_bytes = fresh, fresh.size

    def _release(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = None
