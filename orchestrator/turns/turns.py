"""Exclusive turns on a GPU that sessions share: first come, first served, one at a time.

A turn is taken by the orchestrator around the work, never by a command inside a sandbox: two ends
of one pipe would wait for each other, and a command that is killed while it waits would keep its
place. While a turn lasts every sandbox of the device stands still, the asking one too, and the work
starts once the GPU has fallen idle. The device's lease makes the turn hold for the whole machine,
isolated grades included; the kernel gives it back when its holder dies.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from graders import gpu_rules, gpu_state
from graders.timing import turn_name
from sandboxes.errors import LeaseBusy, SandboxError
from sandboxes.lease import lease
from transcripts.records import GpuReading

STALL_S = 600.0
"""Seconds after which who waits is told who holds; told again each time this doubles."""

IDLE_S = 10.0
"""Longest wait for the GPU to fall idle once the sandboxes stand still; the turn says if it did."""

_LOOK_S = 0.5


class Freezable(Protocol):
    """What a turn makes stand still; see `sandboxes.base.Sandbox`."""

    def freeze(self) -> None:
        """Stop everything inside. Idempotent."""
        ...

    def thaw(self) -> None:
        """Let it go on. Idempotent."""
        ...


@dataclass(frozen=True)
class Turn:
    """A turn that was got. Seconds; MiB of the device that were taken before the work began."""

    waited_s: float
    frozen: int  # sandboxes that stand still for it
    busy_percent: int  # of its time that the GPU still worked when the turn began
    used_mib: int | None


@dataclass
class _Device:
    """Who waits for one device and who shares it."""

    lock: threading.Condition = field(default_factory=threading.Condition)
    waiting: deque["Ticket"] = field(default_factory=deque)  # the first holds, or is about to
    sharing: dict[int, Freezable] = field(default_factory=dict)
    held: bool = False


class Ticket:
    """A place in the queue of one device; give it back by `leave` or by using it."""

    def __init__(self, turns: "Turns", device: str, who: str) -> None:
        self._turns, self.device, self.who = turns, device, who
        self.since = time.monotonic()  # when it began to wait, or to hold
        self.has_turn = False

    @property
    def ahead(self) -> int:
        """How many are served before this one; 0 also for one that is done."""
        return self._turns.ahead(self)

    @contextmanager
    def turn(self, check_stop: Callable[[], None]) -> Iterator[Turn]:
        """Wait, hold the device for the duration, and leave. Raises what ``check_stop`` raises."""
        try:
            with self._turns.hold(self, check_stop) as turn:
                yield turn
        finally:
            self.leave()

    def leave(self) -> None:
        """Give the place up. Idempotent."""
        self._turns.leave(self)


class Turns:
    """The turns of one orchestrator process, of all its devices."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        stall_s: float = STALL_S,
        reading: Callable[[str], GpuReading | None] = gpu_state.reading,
    ) -> None:
        """``say`` is told of holders that stall; ``reading`` looks at a device."""
        self._say, self._stall_s, self._reading = say, stall_s, reading
        self._devices: dict[str, _Device] = {}
        self._lock = threading.Lock()

    @contextmanager
    def sharing(self, device: str, sandbox: Freezable) -> Iterator[None]:
        """A sandbox works on the device: for the duration it stands still in others' turns."""
        at = self._device(device)
        with at.lock:
            at.sharing[id(sandbox)] = sandbox
            if at.held:
                sandbox.freeze()
        try:
            yield
        finally:
            with at.lock:
                del at.sharing[id(sandbox)]

    def enter(self, device: str, who: str) -> Ticket:
        """Take a place at the end of the queue; ``who`` is what others are told."""
        ticket, at = Ticket(self, device, who), self._device(device)
        with at.lock:
            at.waiting.append(ticket)
        return ticket

    def ahead(self, ticket: Ticket) -> int:
        """See `Ticket.ahead`."""
        at = self._device(ticket.device)
        with at.lock:
            return at.waiting.index(ticket) if ticket in at.waiting else 0

    def leave(self, ticket: Ticket) -> None:
        """See `Ticket.leave`."""
        at = self._device(ticket.device)
        with at.lock, suppress(ValueError):
            at.waiting.remove(ticket)
            at.lock.notify_all()

    @contextmanager
    def hold(self, ticket: Ticket, check_stop: Callable[[], None]) -> Iterator[Turn]:
        """See `Ticket.turn`."""
        at = self._device(ticket.device)
        watch = _Watch(self._say, ticket, self._stall_s)
        self._until_first(at, ticket, check_stop, watch)
        with _machine_wide(ticket.device, check_stop, watch):
            frozen = _stand_still(at)
            try:
                busy, used = self._until_idle(ticket.device)
                waited = time.monotonic() - ticket.since
                ticket.since, ticket.has_turn = time.monotonic(), True
                yield Turn(round(waited, 3), frozen, busy, used)
            finally:
                _go_on(at)

    def _until_first(
        self, at: _Device, ticket: Ticket, check_stop: Callable[[], None], watch: "_Watch"
    ) -> None:
        while True:
            check_stop()
            with at.lock:
                first = at.waiting[0]
                if first is ticket:
                    return
                at.lock.wait(_LOOK_S)
            if at.held:
                watch.look(first.who, time.monotonic() - first.since)

    def _until_idle(self, device: str) -> tuple[int, int | None]:
        """Per cent of its time that it still works, and the MiB that are taken."""
        deadline = time.monotonic() + IDLE_S
        while True:
            now = self._reading(device)
            busy = 0 if now is None else now.utilisation_percent or 0
            if busy <= gpu_rules.USED_PERCENT or time.monotonic() > deadline:
                return busy, None if now is None else now.memory_used_mib
            time.sleep(_LOOK_S)

    def _device(self, device: str) -> _Device:
        with self._lock:
            return self._devices.setdefault(device, _Device())


class _Watch:
    """Names a holder that stalls, once each time the wait doubles."""

    def __init__(self, say: Callable[[str], None], ticket: Ticket, stall_s: float) -> None:
        self._say, self._ticket, self._next_s = say, ticket, stall_s

    def look(self, holder: str, held_s: float) -> None:
        """Say it where it is time to."""
        if held_s >= self._next_s:
            self._next_s = 2 * held_s
            self._say(
                f"{self._ticket.device} is held by {holder} for {held_s:.0f} s; "
                f"{self._ticket.who} waits"
            )


@contextmanager
def _machine_wide(device: str, check_stop: Callable[[], None], watch: _Watch) -> Iterator[None]:
    """The device's lease, against other processes of this machine."""
    started = time.monotonic()
    with ExitStack() as stack:
        while True:
            check_stop()
            try:
                stack.enter_context(lease(turn_name(device), timeout_s=_LOOK_S))
            except LeaseBusy as busy:
                holder = str(busy).partition(" is held by ")[2]
                watch.look(holder, time.monotonic() - started)
            else:
                break
        yield


def _stand_still(at: _Device) -> int:
    """Freeze what shares the device; how many that were. What joins from now on starts frozen."""
    with at.lock:
        at.held = True
        sandboxes = list(at.sharing.values())
    for sandbox in sandboxes:
        with suppress(SandboxError):  # one that is gone disturbs nobody
            sandbox.freeze()
    return len(sandboxes)


def _go_on(at: _Device) -> None:
    with at.lock:
        at.held = False
        sandboxes = list(at.sharing.values())
    for sandbox in sandboxes:
        with suppress(SandboxError):
            sandbox.thaw()
