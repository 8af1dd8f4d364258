"""Stop all processes of a worker, let them go, and bill what they spent in between.

While a worker is stopped nothing of it counts, so what the kernel counts between two stops was
spent in the *windows* between. A worker that was given one core cannot spend more than a second of
it a second, wherever its threads are when somebody looks. Timed calls are billed by themselves: who
sleeps in between saves up nothing for them.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from graders import processes
from graders.errors import SubmissionFailed
from transcripts.words import GradeResult

MOST_CORES, MOST_COUNTED_CORES = 1.2, 1.05
"""CPU time over wall time of a worker with one core: 1, and what rounding and the switch of clocks
add; less where a group counts to the microsecond."""
SLACK_S, SLACK_OF_A_PROCESS_S = 0.05, 0.02
"""Beside it; the second where ended threads and children are counted in ticks of 10 ms."""


@dataclass(frozen=True)
class Window:
    """Time in which a worker was let run, in seconds."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0  # its threads could have run, had they had a core

    def __add__(self, other: "Window") -> "Window":
        return Window(
            self.wall_s + other.wall_s,
            self.cpu_s + other.cpu_s,
            self.waited_s + other.waited_s,
        )

    @property
    def lost_s(self) -> float:
        """Time that others took from it: threads of its own that wait for each other do not count,
        because one of them was running then."""
        return max(min(self.waited_s, self.wall_s - self.cpu_s), 0.0)


class Holding:
    """The processes below ``root``, those of our own (``launchers``) excepted."""

    def __init__(
        self,
        root: int,
        launchers: Collection[int],
        *,
        one_core: bool,
        counted_s: Callable[[], float] | None = None,
    ) -> None:
        """``one_core``: no more than one is to be spent, however many it makes itself run on.

        ``counted_s`` gives the CPU time of all, those included that no process accounts for.
        """
        self._root, self._launchers, self._one_core = root, launchers, one_core
        self._counted_s = counted_s
        self._most_cores = MOST_CORES if counted_s is None else MOST_COUNTED_CORES
        self._held: processes.Held | None = None
        self._before: processes.Spent | None = None
        self._let_go_ns: int | None = None
        self._total, self._calls, self._taken = Window(), Window(), Window()

    def stop(self) -> int:
        """Stop all; the `perf_counter_ns` when they were. Raises SubmissionFailed, `tampered`."""
        if self._held is not None:
            return self._held.since_ns
        held = processes.hold(self._members)
        if held is None:
            raise SubmissionFailed(
                GradeResult.TAMPERED, "processes of the worker cannot all be stopped"
            )
        self._held = held
        self._bill(held)
        return held.since_ns

    @property
    def is_on(self) -> bool:
        """True while all are stopped."""
        return self._held is not None

    def let_go(self) -> None:
        """Let run on what was stopped, if anything was."""
        if self._held is not None:
            self._let_go_ns = time.perf_counter_ns()
            processes.resume(self._held.pids)
            self._held = None

    def take(self) -> Window:
        """What has been spent since it was last asked."""
        taken, self._taken = self._taken, Window()
        return taken

    def take_call(self) -> Window:
        """The same of a timed call. Raises SubmissionFailed, `tampered`."""
        window = self.take()
        self._calls += window
        self._refuse(self._calls)
        return window

    def _members(self) -> list[int]:
        return [pid for pid in processes.below(self._root) if pid not in self._launchers]

    def _bill(self, held: processes.Held) -> None:
        now = processes.spent([*held.pids, *self._launchers])
        if self._counted_s is not None:
            now = processes.Spent(self._counted_s(), now.waited_s)
        before, self._before = self._before, now
        if before is None or self._let_go_ns is None:
            return
        window = Window(
            (held.since_ns - self._let_go_ns) / 1e9,
            max(now.cpu_s - before.cpu_s, 0.0),
            max(now.waited_s - before.waited_s, 0.0),
        )
        self._let_go_ns = None
        self._total, self._taken = self._total + window, self._taken + window
        self._refuse(self._total)

    def _refuse(self, spent: Window) -> None:
        held = 1 if self._held is None else len(self._held.pids)
        slack = SLACK_S + (SLACK_OF_A_PROCESS_S * held if self._counted_s is None else 0.0)
        if self._one_core and spent.cpu_s > self._most_cores * spent.wall_s + slack:
            raise SubmissionFailed(
                GradeResult.TAMPERED,
                f"it spent {spent.cpu_s:.2f} s of CPU time in {spent.wall_s:.2f} s; "
                "it was given one core",
            )
