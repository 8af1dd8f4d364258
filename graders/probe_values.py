"""Probes that compare values: what a submission returns must follow the bytes that are there."""

import random
import statistics
from collections.abc import Sequence

import numpy as np

from graders.candidate import Draw
from graders.probe_calls import Known, ProbeCalls, checked
from tasks.spec import Shape
from transcripts.records import CheckResult

MANY_CALLS = (20, 32)  # at least, at most
WARM_UPS = 4  # calls of a shape before another, at most
DIRT = (0xFF, 0x3C)  # NaN in every float format, and an ordinary small number
CHANGES = 3
LATE_COPY_S = 0.05
BUSY_MS = 40  # of the default stream, far beyond the launch and the copy of a small call


class ValueProbes(ProbeCalls):
    """Probes that need a submission which is right when nothing disturbs it."""

    def same_memory(self, shape: Shape) -> list[CheckResult]:
        """A, B, A in one place."""
        a, b = self.known(shape), self.known(shape)
        told = []
        for name, known in (("A", a), ("B after A", b), ("A after B", a)):
            if wrong := self.wrong(known, self.sequence(known, same_memory=True)):
                told.append(f"{name}: {wrong}")
        mechanisms = ("cache:pointer", "cache:object", "cache:version", "cache:shape")
        return [checked("same memory, new content", m, told, shape=shape.name) for m in mechanisms]

    def recycled(self, shape: Shape) -> list[CheckResult]:
        """A, then B in the same place by objects that take the place of freed ones, then C anew."""
        told = []
        plan = (
            ("A", {"same_memory": False}),
            ("B by recycled objects", {"same_memory": True, "recycle": True}),
            ("C by recycled objects", {"same_memory": True, "recycle": True}),
            ("D in new memory", {"same_memory": False}),
        )
        for name, how in plan:
            known = self.known(shape)
            if wrong := self.wrong(known, self.sequence(known, **how)):
                told.append(f"{name}: {wrong}")
        mechanisms = ("cache:object", "cache:pointer")
        return [checked("freed and recycled", m, told, shape=shape.name) for m in mechanisms]

    def one_element(self, shape: Shape) -> list[CheckResult]:
        """A, then A with one element of each large input far from what it was, in one place."""
        a = self.known(shape)
        told = [w for w in [self.wrong(a, self.sequence(a, same_memory=True))] if w]
        for n in range(CHANGES):
            changed = with_one_change(a.draw, self.dice(f"one/{n}"))
            known = Known(changed, self.candidate.expected(changed))
            if wrong := self.wrong(known, self.sequence(known, same_memory=True)):
                told.append(f"change {n}: {wrong}")
        return [checked("one element changed", "cache:sampled", told, shape=shape.name)]

    def any_order(self, small: Shape, others: Sequence[Shape]) -> list[CheckResult]:
        """The small shape again and again, others between in a random order, a random number."""
        dice = self.dice("order")
        between = [*others, *others] or [small]
        dice.shuffle(between)
        told = []
        for other in between:
            for shape, calls in ((other, dice.randint(1, WARM_UPS)), (small, dice.randint(1, 2))):
                for n in range(calls):
                    known = self.known(shape)
                    if wrong := self.wrong(known, self.sequence(known)):
                        told.append(f"{shape.name}, call {n + 1} after {other.name}: {wrong}")
        names = [shape.name for shape in between]
        return [checked("shapes in any order", "cache:shape", told, between=names)]

    def dirty_memory(self, shape: Shape) -> list[CheckResult]:
        """The same heap or device memory, filled with two different bytes before each call."""
        known, told = self.known(shape), []
        for byte in DIRT:
            answers = self.sequence(known, dirty=byte, sizes=self.sizes(known))
            if wrong := self.wrong(known, answers):
                told.append(f"memory of 0x{byte:02X}: {wrong}")
        return [checked("dirty memory", "correctness:uninitialised", told, bytes=[*DIRT])]

    def scribbled(self, shape: Shape) -> list[CheckResult]:
        """Outputs are overwritten after they were returned, then the sequence runs again."""
        known = self.known(shape)
        first = self.wrong(known, self.sequence(known, scribble=True))
        again = self.wrong(known, self.sequence(known))
        told = [line for line in (first, again) if line]
        return [checked("returned output scribbled", "tamper:alias", told, shape=shape.name)]

    def many_calls(self, shape: Shape) -> list[CheckResult]:
        """Cost and result by call number, over a number of calls that nobody knows."""
        wanted = self.dice("calls").randint(*MANY_CALLS)
        milliseconds: list[float] = []
        told = []
        while len(milliseconds) < wanted:
            known = self.known(shape)
            answers = self.sequence(known)
            milliseconds += [answer.elapsed_ns / 1e6 for answer in answers]
            if wrong := self.wrong(known, answers):
                told.append(f"after {len(milliseconds)} calls: {wrong}")
                break
        third = max(len(milliseconds) // 3, 1)
        costs = {
            "first_ms": round(statistics.median(milliseconds[:third]), 4),
            "last_ms": round(statistics.median(milliseconds[-third:]), 4),
        }
        return [checked("many calls", "timing:call-count", told, calls=len(milliseconds), **costs)]

    def late_copies(self, shape: Shape) -> list[CheckResult]:
        """The outputs as they lie where they were made: at once, and when all has come to rest.

        Only a change counts: what is wrong and stays so was not written late.
        """
        known, told = self.known(shape), []
        answers = self.sequence(
            known, room=2 * known.room, op="probe", what="late", wait_s=LATE_COPY_S
        )
        for n, answer in enumerate(answers):
            for name in known.expected[n]:
                later = answer.outputs.get(f"later/{name}")
                if later is None or later.tobytes() != answer.outputs[name].tobytes():
                    told.append(f"call {n}: {name} changes within {LATE_COPY_S * 1e3:.0f} ms")
        on_cpu = self.candidate.device == "cpu"
        mechanism = "timing:late-write" if on_cpu else "timing:unjoined"
        if told and (wrong := self.wrong(known, answers)):
            told.append(f"at once: {wrong}")
        return [checked("copied at once and later", mechanism, told, shape=shape.name)]

    def foreign_stream(self, shape: Shape) -> list[CheckResult]:
        """A call with a side stream current, and only that waited for, while others are busy."""
        told = []
        for name, busy_ms in (("idle", 0), ("busy", BUSY_MS)):
            known = self.known(shape)
            answers = self.sequence(known, op="probe", what="stream", busy_ms=busy_ms)
            if wrong := self.wrong(known, answers):
                told.append(f"default stream {name}: {wrong}")
        return [checked("foreign stream", "correctness:stream", told, busy_ms=BUSY_MS)]


def with_one_change(draw: Draw, rng: random.Random) -> Draw:
    """One element of each float input of the last call, set beyond its largest."""
    last = dict(draw.calls[-1])
    for name, array in last.items():
        if array.dtype.kind == "f" and array.size > 8:
            changed = array.copy(order="K")
            at = tuple(rng.randrange(n) for n in array.shape)
            changed[at] = np.nanmax(np.where(np.isfinite(array), array, 0)) + 3
            last[name] = changed
    return Draw(draw.params, [*draw.calls[:-1], last])
