"""Probes that watch what a submission leaves behind, right or wrong: time, threads, memory."""

import statistics
import time

from graders import processes
from graders.probe_calls import ProbeCalls, checked
from tasks.spec import Shape
from transcripts.records import CheckResult

LATE_S = 0.03
LOOKS = 10
REPEATS = 4
CACHED = 2.0  # times faster
CACHED_MS = 0.3  # and at least so much


class TraceProbes(ProbeCalls):
    """Probes that look at something else than values."""

    def late_write(self, shape: Shape) -> list[CheckResult]:
        """Outputs in shared memory, at the answer and a moment later."""
        known = self.known(shape)
        answer = self.sequence(known)[-1]
        time.sleep(LATE_S)  # the worker runs on; the longer, the more a late writer can do
        later = self.session.reread(answer)
        told = [
            f"{name} changed within {LATE_S * 1e3:.0f} ms after the answer"
            for name, array in answer.outputs.items()
            if array.tobytes() != later[name].tobytes()
        ]
        return [
            checked("late write", "timing:late-write", told, waited_ms=LATE_S * 1e3),
            checked("late write", "timing:lazy", [*told, *sorted(self.types)]),
        ]

    def equal_content(self, shape: Shape) -> list[CheckResult]:
        """Equal inputs against fresh ones, both in the memory of the call before."""
        repeated = self.known(shape)
        self.timed_ms(repeated.draw, repeated.room)
        fresh_ms, repeated_ms = [], []
        for _ in range(REPEATS):
            draw = self.draw(shape)
            fresh_ms.append(self.timed_ms(draw, repeated.room))
            repeated_ms.append(self.timed_ms(repeated.draw, repeated.room))
        fresh, again = min(fresh_ms), statistics.median(repeated_ms)  # noise only ever adds
        told = []
        if fresh > CACHED * again and fresh - again > CACHED_MS:
            told.append(f"equal inputs take {again:.3f} ms, fresh ones {fresh:.3f} ms")
        figures = {"fresh_ms": round(fresh, 4), "repeated_ms": round(again, 4)}
        return [checked("equal content", "cache:content", told, shape=shape.name, **figures)]

    def left_behind(self, threads_before: int) -> list[CheckResult]:
        """Processes beside the worker, and threads that want to run while nobody calls."""
        time.sleep(LATE_S)  # pools of finished parallel regions go to sleep
        others = self.session.strays()
        busy = 0
        for _ in range(LOOKS):
            states = processes.thread_states(self.session.pid)
            busy += "R" in states.values()
            time.sleep(LATE_S / LOOKS)
        told = [f"process {line.name} ({line.state}) is left" for line in others]
        if busy > LOOKS / 2:
            told.append(f"a thread wants to run in {busy} of {LOOKS} looks while nobody calls")
        counts = {"processes": len(others), "threads": len(states), "before": threads_before}
        return [checked("left behind", "process:left-behind", told, **counts)]

    def context(self) -> list[CheckResult]:
        """The thread's CUDA context; the first look, right after the build, remembers it."""
        limit = self.candidate.task.limits.call_s
        answer = self.session.ask({"op": "probe", "what": "context"}, limit)
        told = [] if answer.get("same") is True else ["another CUDA context is left current"]
        return [checked("context left behind", "process:left-behind", told)]

    def hygiene(self) -> list[CheckResult]:
        """What all calls of all probes left of their inputs, and the types of their outputs."""
        return [
            checked("inputs unchanged", "tamper:inputs", sorted(self.changed)),
            checked("plain outputs", "correctness:output-type", sorted(self.types)),
        ]
