"""Whether a figure taken on a GPU stands: contention and throttling make an isolated grade void.

It is void when, before or after measuring,

- a compute process that is not ours is on the GPU: it takes SMs, bandwidth or L2 whenever it likes;
- a hardware, thermal or power-brake slowdown is active, or was for more than ``SLOWED_US`` between
  the two readings (drivers that count it): clocks were then set by heat or by a power supply;
- before it starts, somebody uses the GPU although none of our workers lives: that also shows
  processes which the driver does not list to us (see ``graders.gpu_state``);
- MIG is on: the whole GPU, to which all peaks refer, is then nobody's.

A software power cap (``sw_power_cap``) is *not* void: it is how a GPU under full load keeps to its
power limit, so a dense GEMM on a sound H200 shows it, and to refuse it would refuse the busiest
kernels. The cap itself is recorded. Clocks set by an operator (``applications_clocks_setting``,
``sync_boost``, ``display_clock_setting``) hold for every submission alike; recorded, not void.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graders import gpu_state
from graders.errors import GraderVoid
from transcripts.records import GpuReading

PATIENCE_S = 20.0  # for work that is ending, and for a hot GPU to cool
USED_PERCENT = 5  # utilisation, above which somebody computes; an idle GPU reads 0
SLOWED_US = 10_000
"""Slowdown within one measurement, of some seconds of work, that its median cannot show."""

SLOWDOWNS = frozenset(
    {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
_POLL_S = 0.25
_ENDING_S = 2.0


def busy(now: GpuReading | None) -> str:
    """Why nothing can be measured on this GPU now, and what to do; "" when it can."""
    if now is None:
        return "the driver no longer answers for it: see `nvidia-smi` and `dmesg | grep -i xid`"
    if now.mig == "Enabled":
        return "MIG is on: turn it off (`nvidia-smi -mig 0`), peaks are those of a whole GPU"
    if now.foreign_processes:
        return (
            f"{now.foreign_processes} compute process(es) of others are on it: end them, or wait "
            "(`nvidia-smi --query-compute-apps=pid,name --format=csv` names them)"
        )
    if slow := sorted(SLOWDOWNS.intersection(now.throttled_by)):
        return f"its clocks are held down ({', '.join(slow)}): see to its cooling and power supply"
    if (used := now.utilisation_percent or 0) > USED_PERCENT:
        return f"somebody uses it ({used}%): wait for them to end{_persistence_hint(now)}"
    return ""


def disturbed(before: GpuReading | None, after: GpuReading | None) -> str:
    """Why what was measured between two readings is void; "" when it stands.

    The use of the GPU in ``after`` is our own and says nothing.
    """
    quiet = after and after.model_copy(update={"utilisation_percent": None})
    if told := busy(quiet):
        return told
    if before and after and before.slowed_us is not None and after.slowed_us is not None:
        slowed = after.slowed_us - before.slowed_us
        if slowed > SLOWED_US:
            told = f"heat or power held its clocks down for {slowed / 1e3:.0f} ms of the time"
            return f"{told}: see to its cooling and power supply"
    return ""


def settled(
    uuid: str, patience_s: float = PATIENCE_S, ours: Collection[int] = ()
) -> GpuReading | None:
    """The reading of an idle GPU, or the last one when it does not become idle in time."""
    stop_at = time.monotonic() + patience_s
    now = gpu_state.reading(uuid, ours)
    while busy(now) and time.monotonic() < stop_at:
        time.sleep(_POLL_S)
        now = gpu_state.reading(uuid, ours)
    return now


def afterwards(uuid: str, ours: Collection[int] = ()) -> GpuReading | None:
    """The reading after our own workers were killed; a context takes a moment to be taken down."""
    stop_at = time.monotonic() + _ENDING_S
    now = gpu_state.reading(uuid, ours)
    while now and now.foreign_processes and time.monotonic() < stop_at:
        time.sleep(_POLL_S)
        now = gpu_state.reading(uuid, ours)
    return now


@dataclass
class Readings:
    """What the driver said of a GPU before and after measuring; nothing on a CPU."""

    before: GpuReading | None = None
    after: GpuReading | None = None


@contextmanager
def watched(
    device: str, strict: bool, readings: Readings, ours: Collection[int] = ()
) -> Iterator[None]:
    """Read a GPU's state around what is measured inside. Nothing is done on a CPU.

    ``strict``, for an isolated grade: wait for an idle GPU, ``PATIENCE_S`` at most, and raise
    GraderVoid by the rules of this module. ``ours`` are workers that live before and after. Errors
    from inside go on as they are.
    """
    if device == "cpu":
        yield
        return
    readings.before = settled(device, PATIENCE_S if strict else 0.0, ours)
    if strict:
        require(busy(readings.before), device)
    try:
        yield
    finally:
        readings.after = afterwards(device, ours)
    if strict:
        require(disturbed(readings.before, readings.after), device)


def require(told: str, uuid: str) -> None:
    """Raises GraderVoid for a reason of ``busy`` or ``disturbed``."""
    if told:
        raise GraderVoid(f"GPU {uuid} cannot be measured on: {told}; then grade again")


def _persistence_hint(now: GpuReading) -> str:
    if now.persistence is not False:
        return ""
    return (
        "; if nobody does, turn persistence on (`nvidia-smi -pm 1`): without it the driver starts "
        "anew for each reading, which counts as use"
    )
