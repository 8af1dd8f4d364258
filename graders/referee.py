"""The referee's side of one worker: it asks, reads the clock, copies outputs, and believes nothing.

``WorkerSession`` never raises for what a submission does but ``SubmissionFailed``, whose word comes
from this table:

=====================================================  ==========
what the referee sees                                  word
=====================================================  ==========
``build`` answered by an exception                     import (memory for MemoryError, build for a
                                                       compiler that failed)
``setup`` or ``call`` answered by an exception         crash (memory, import, build as above)
an output that cannot be copied, or exceeds its room   wrong
silence past the deadline                              timeout
the process ended or closed its socket                 crash
a frame that is none, was not asked for, or lies       tampered
=====================================================  ==========
"""

import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from graders import launch, processes
from graders.buffers import BadLeaf, Buffer, Layout, layout, read_output
from graders.entry import Entry
from graders.errors import GraderVoid, SubmissionFailed
from graders.launch import World
from graders.wire import WireBroken, receive_frame, send_frame
from transcripts.words import GradeResult

START_S = 30.0
ENDING_S = 0.5  # for a process whose socket is closed to end
COPY_BYTES = 256 << 10
"""Up to here the clock stops when the outputs have been copied. Above, copying would cost more than
stopping every process of the worker: there it stops when all are seen stopped, and copies then."""
LOG_BYTES = 16 << 10
_BROKEN = {
    "closed": GradeResult.CRASH,
    "garbage": GradeResult.TAMPERED,
    "oversize": GradeResult.TAMPERED,
    "timeout": GradeResult.TIMEOUT,
}
_RAISED = {"import": GradeResult.IMPORT, "output": GradeResult.WRONG}
_BY_EXCEPTION = {
    "MemoryError": GradeResult.MEMORY,
    "CalledProcessError": GradeResult.BUILD,
    "ImportError": GradeResult.IMPORT,
}


@dataclass
class Prepared:
    """The memory of one call, written and not yet shown to the worker."""

    placed: Layout
    inputs: Buffer
    outputs: Buffer

    def close(self) -> None:
        """Give the memory back."""
        self.inputs.close()
        self.outputs.close()


@dataclass(frozen=True)
class Answer:
    """What one call gave: private copies of its outputs, and the referee's time."""

    outputs: dict[str, np.ndarray]
    elapsed_ns: int  # from just before `go` until no worker could change the outputs any more
    leaves: tuple[dict[str, Any], ...]  # as the worker described them: claims
    claims: dict[str, str] = field(default_factory=dict)  # type of each output


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
        self._place, self._deadline = place, deadline
        self._prepared: Prepared | None = None
        self._calls = 0
        self._held: list[int] = []
        self.usable = True  # False once its answers can no longer be matched to questions
        self._log = bytearray()
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._popen = launch.start(place, memory_bytes, device, theirs)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()
        self.pid = self._await_ready(core)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def build(self, entry: Entry | None, outputs: tuple[str, ...], device: str, s: float) -> float:
        """Import the submission; returns the seconds that it took."""
        frame: dict[str, Any] = {
            "op": "build",
            "folder": "",
            "file": "",
            "names": {},
            "absent": [],
            "outputs": list(outputs),
            "device": device,
        }
        if entry is not None:
            file = launch.shown(self._place) / entry.file
            frame |= {"folder": str(file.parent), "file": str(file)}
            frame |= {"names": dict(entry.names), "absent": list(entry.absent)}
        started = time.perf_counter()
        self._ask(frame, s)
        return time.perf_counter() - started

    def setup(self, params: Mapping[str, Any], s: float) -> None:
        """Begin a new sequence of calls."""
        self._ask({"op": "setup", "params": dict(params)}, s)

    def prepare(self, inputs: Mapping[str, np.ndarray], room: int) -> Prepared:
        """Write the inputs of a call into fresh memory that the worker has never seen."""
        placed = layout(inputs)
        prepared = Prepared(placed, Buffer(placed.size, "inputs"), Buffer(room, "outputs"))
        prepared.inputs.write(placed, inputs)
        prepared.outputs.fill(0)  # its pages exist before the clock starts
        return prepared

    def overwrite(self, inputs: Mapping[str, np.ndarray], room: int) -> bool:
        """New content in the memory of the last call; False when it does not fit there."""
        last = self._prepared
        if last is None or last.outputs.size != room or last.placed != layout(inputs):
            return False
        last.inputs.write(last.placed, inputs)
        return True

    def go(
        self,
        prepared: Prepared | None,
        s: float,
        *,
        dirty: int | None = None,
        scribble: bool = False,
        extras: bool = False,
        held: bool = False,
    ) -> Answer:
        """One call. ``prepared`` None calls again on the memory of the last call.

        ``held``: the worker is stopped, and the clock starts before it is let go.
        """
        fds: tuple[int, ...] = ()
        if prepared is not None:
            self._release()
            self._prepared = prepared
            fds = (prepared.inputs.fd, prepared.outputs.fd)
        memory = self._prepared
        assert memory is not None
        self._refuse_unasked()
        self._calls += 1
        frame = {"op": "call", "n": self._calls, "inputs": list(memory.placed.leaves)}
        frame |= {
            "room": memory.outputs.size,
            "dirty": dirty,
            "scribble": scribble,
            "extras": extras,
        }
        started = time.perf_counter_ns()
        if held:
            self.resume()
        answer = self._ask(frame, s, fds)
        if memory.outputs.size > COPY_BYTES:
            self.hold()
            elapsed = time.perf_counter_ns() - started
            outputs = self._copies(answer, memory)
            self.resume()
        else:
            outputs = self._copies(answer, memory)
            elapsed = time.perf_counter_ns() - started
        leaves = tuple(leaf for leaf in answer["outputs"] if isinstance(leaf, dict))
        claims = {str(leaf.get("name")): str(leaf.get("type"))[:200] for leaf in leaves}
        return Answer(outputs, elapsed, leaves, claims)

    def call(self, inputs: Mapping[str, np.ndarray], room: int, s: float) -> Answer:
        """One call on fresh memory."""
        return self.go(self.prepare(inputs, room), s)

    def reread(self, answer: Answer) -> dict[str, np.ndarray]:
        """The outputs of the last call as they are in shared memory now."""
        assert self._prepared is not None
        buffer = self._prepared.outputs
        return {str(leaf["name"]): read_output(buffer, leaf) for leaf in answer.leaves}

    def changed_inputs(self, inputs: Mapping[str, np.ndarray]) -> list[str]:
        """Names of the last call's inputs that are no longer what the referee wrote."""
        assert self._prepared is not None
        return self._prepared.inputs.changed(self._prepared.placed, inputs)

    def strays(self) -> list[processes.ProcessLine]:
        """Processes beside the worker and its launchers, zombies included."""
        pids = {*processes.below(self._popen.pid), *processes.marked(self._place.mark)}
        pids -= {self.pid, *self._launchers}
        return [line for line in processes.process_table() if line.pid in pids]

    def resident_bytes(self) -> int:
        """Private resident memory of the worker process, from the kernel."""
        return processes.resident_bytes(self.pid)

    def cores(self) -> set[int]:
        """Cores that any process of the worker may run on now."""
        pids = processes.below(self._popen.pid)
        return set().union(*map(processes.allowed_cores, pids))

    def timed_call(self, inputs: Mapping[str, np.ndarray], room: int, s: float) -> Answer:
        """One call whose inputs are written while every process of the worker is stopped.

        In a jail all processes can be seen and stopped, so the memory of the last call serves
        again, which keeps the price of mapping it out of the figure. Unconfined, a process may
        hide, so each call has fresh memory, which nobody can read before *go*.
        """
        self.hold()
        if self._place.is_confined and self.overwrite(inputs, room):
            return self.go(None, s, held=True)
        return self.go(self.prepare(inputs, room), s, held=True)

    def hold(self) -> None:
        """Stop every process of the worker. Raises SubmissionFailed when one escapes."""
        found = processes.below(self._popen.pid)
        self._held = [pid for pid in found if pid not in self._launchers]
        if not processes.hold(self._held):
            raise self._forged("a process of the worker does not stop")

    def resume(self) -> None:
        """Let run on what `hold` stopped."""
        processes.resume(self._held)

    @property
    def log_tail(self) -> str:
        """The end of what was printed."""
        return bytes(self._log).decode("utf-8", "replace")

    def close(self) -> None:
        """Kill the whole tree. Idempotent."""
        launch.kill(self._popen, self._place)
        self._reader.join(timeout=5)
        self._sock.close()
        self._release()

    def _await_ready(self, core: int) -> int:
        """Wait for the first frame, while only our own code runs in there."""
        try:
            receive_frame(self._sock, time.monotonic() + START_S)
        except WireBroken as error:
            self.close()
            raise GraderVoid(f"the worker did not start: {error}; {self.log_tail}") from error
        line = processes.below(self._popen.pid)
        processes.pin(line, {core} if core >= 0 else processes.OUR_CORES)
        self._launchers = frozenset(line[:-1])
        return line[-1]

    def _ask(self, frame: dict[str, Any], s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        deadline = time.monotonic() + s
        if self._deadline is not None:
            deadline = min(deadline, self._deadline)
        try:
            send_frame(self._sock, frame, fds)
            answer, unasked = receive_frame(self._sock, deadline)
        except WireBroken as error:
            raise self._broken(error) from error
        for fd in unasked:
            socket.close(fd)
        if "error" in answer:
            raise _raised(answer)
        if answer.get("ok") != frame["op"] or answer.get("n") != frame.get("n"):
            raise self._forged(f"a forged answer to `{frame['op']}`: {str(answer)[:200]}")
        return answer

    def _broken(self, error: WireBroken) -> SubmissionFailed:
        self.usable = False
        how = str(error)
        if error.how == "closed":
            how = self._ending()
        return SubmissionFailed(_BROKEN[error.how], how)

    def _ending(self) -> str:
        """How the process ended. Jails report a signal as 128 + its number."""
        with contextlib.suppress(Exception):
            self._popen.wait(timeout=ENDING_S)
        code = self._popen.returncode
        if code is None:
            return "it closed its socket to the referee and lives on"
        number = -code if code < 0 else code - 128
        if number > 0 and number in {s.value for s in signal.Signals}:
            return f"killed by {signal.Signals(number).name} before it answered"
        return f"exited with code {code} before it answered"

    def _refuse_unasked(self) -> None:
        """A frame that nobody asked for was written by the submission."""
        if select.select([self._sock], [], [], 0)[0]:
            try:
                frame, fds = receive_frame(self._sock, time.monotonic() + 1)
            except WireBroken as error:
                raise self._broken(error) from error
            for fd in fds:
                socket.close(fd)
            raise self._forged(f"an unasked frame: {str(frame)[:200]}")

    def _forged(self, how: str) -> SubmissionFailed:
        self.usable = False
        return SubmissionFailed(GradeResult.TAMPERED, how)

    def _copies(self, answer: dict[str, Any], held: Prepared) -> dict[str, np.ndarray]:
        try:
            return {
                str(leaf["name"]): read_output(held.outputs, leaf) for leaf in answer["outputs"]
            }
        except (BadLeaf, KeyError, TypeError) as error:
            raise self._forged(f"a forged answer: {error}") from error

    def _drain(self) -> None:
        assert self._popen.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._popen.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                self._log += chunk
                del self._log[:-LOG_BYTES]

    def _release(self) -> None:
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None


def _raised(answer: dict[str, Any]) -> SubmissionFailed:
    bases = answer.get("bases")
    names = [str(base) for base in bases] if isinstance(bases, list) else []
    kind = str(answer["error"])
    word = _RAISED.get(kind, GradeResult.CRASH)
    for name, special in _BY_EXCEPTION.items():
        word = special if name in names else word
    where = answer.get("where")
    places = f" ({'; '.join(map(str, where))})" if isinstance(where, list) and where else ""
    return SubmissionFailed(word, f"{kind}: {str(answer.get('text'))[:600]}{places[:400]}")
