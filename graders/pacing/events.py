"""What a worker's own CUDA events say: a claim, asked for over the wire."""

import math
from dataclasses import dataclass

from graders.errors import SubmissionFailed
from graders.pacing.pools import Pools
from graders.referee import WorkerSession
from transcripts.words import GradeResult

WARM_UP, A_TIME = 10, 40  # calls; the warm-up is the public boards'
SPIN_CYCLES = 2_000_000  # about a millisecond: all launches of a call are queued behind it
ASKING_S = 60.0
SLOWER = 4  # times what a call takes, beside it, before it is given up


@dataclass(frozen=True)
class Events:
    """A worker's own events over windows of these pools."""

    session: WorkerSession
    pools: Pools
    flush: int  # bytes written before each call, so that caches are cold
    call_s: float  # what a call takes, as far as is known

    def idle(self) -> list[float]:
        """Milliseconds of calls on an idle stream. Raises SubmissionFailed."""
        return self._ask(0)

    def queued(self) -> list[float]:
        """The same behind a kernel of `SPIN_CYCLES`: without launch latency."""
        return self._ask(SPIN_CYCLES)

    def _ask(self, spin: int) -> list[float]:
        calls = range(WARM_UP + A_TIME)
        frame = {
            "op": "events",
            "inputs": [pool.leaf for pool in self.pools.pools],
            "begins": [self.pools.choose() for _ in calls],
            "states": [self.pools.choose_state() for _ in calls],
            "warm_up": WARM_UP,
            "flush": self.flush,
            "spin": spin,
        }
        seconds = ASKING_S + SLOWER * len(calls) * self.call_s
        answer = self.session.ask(frame, seconds, tuple(p.block.fd for p in self.pools.pools))
        return believable(answer.get("milliseconds"), A_TIME)


def believable(value: object, count: int) -> list[float]:
    """Claimed milliseconds as finite numbers. Raises SubmissionFailed."""
    numbers = value if isinstance(value, list) else []
    good = [n for n in numbers if type(n) in (int, float) and 0 <= n < 1e7 and math.isfinite(n)]
    if len(numbers) != count or len(good) != count:
        raise SubmissionFailed(GradeResult.TAMPERED, "its events are no list of times")
    return [float(n) for n in good]
