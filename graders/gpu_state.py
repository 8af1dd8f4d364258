"""What the driver says of one GPU at one moment, read by ``nvidia-smi``.

A field that a driver does not know is left out of the question, one that it gives no figure for
("[N/A]") is None. What makes a grade void of all this is in ``graders.gpu_rules``.

Process numbers: the driver counts in the first pid namespace, or in that of whoever asks, by
version and container runtime, and may list nothing at all to a container. Where this process is in
the first namespace, they are exact. Elsewhere a number says nothing, so that ours are told by how
many of our processes hold the GPU open, and ``foreign_processes`` is a lower bound.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from graders.fellows import fellows
from transcripts.records import GpuReading

_ANSWER_S = 30  # without persistence the driver starts anew for each question
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux
_GPU_NODE = re.compile(r"/dev/nvidia\d+")
_REFUSED_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')

REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of the mask: NVML API reference, NvmlClocksEventReasons."""

_COUNTERS = tuple(
    f"clocks_event_reasons_counters.{name}"
    for name in ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
)
"""Microseconds since the driver's start; not asked of drivers that do not know them."""

_REASON_MASKS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The field, and its name in drivers before 535."""

FIELDS = (
    *("clocks.current.sm", "clocks.current.memory", "temperature.gpu", "power.draw", "power.limit"),
    *("utilization.gpu", "memory.used", "persistence_mode", "mig.mode.current"),
    *_REASON_MASKS,
    *_COUNTERS,
)
_refused: dict[str, set[str]] = {}  # by path of the tool: fields that it does not know


def reading(uuid: str, ours: Collection[int] = ()) -> GpuReading | None:
    """The GPU now; None when the driver does not answer for it (it is lost, or not there).

    ``ours`` are processes, beside graders (``graders.fellows``), whose use of it is a grader's.
    """
    values = _query(uuid)
    if not values:
        return None
    listed = _compute_processes(uuid)
    mine = {os.getpid(), *ours, *fellows(uuid)}
    foreign = None if listed is None else count_foreign(listed, mine, _sees_all_processes())
    return parsed(values, foreign)


def parsed(values: dict[str, str], foreign: int | None = None) -> GpuReading:
    """A reading from the driver's words by field; what is no figure ("[N/A]") is None."""
    counted = [n for name in _COUNTERS if (n := _integer(values.get(name))) is not None]
    return GpuReading(
        sm_clock_mhz=_integer(values.get("clocks.current.sm")),
        memory_clock_mhz=_integer(values.get("clocks.current.memory")),
        temperature_c=_integer(values.get("temperature.gpu")),
        power_w=_number(values.get("power.draw")),
        power_limit_w=_number(values.get("power.limit")),
        utilisation_percent=_integer(values.get("utilization.gpu")),
        memory_used_mib=_integer(values.get("memory.used")),
        throttled_by=_reasons(values),
        slowed_us=sum(counted) if counted else None,
        foreign_processes=foreign,
        persistence=_switch(values.get("persistence_mode")),
        mig=_word(values.get("mig.mode.current")),
    )


def count_foreign(
    listed: Sequence[int],
    ours: Collection[int],
    exact: bool,
    nodes: re.Pattern[str] = _GPU_NODE,
) -> int:
    """How many of the driver's compute processes are not ours; see the module for ``exact``."""
    others = [pid for pid in listed if pid not in ours]
    if exact:
        return len(others)
    unmatched = [pid for pid in ours if pid not in listed and _holds(pid, nodes)]
    return max(0, len(others) - len(unmatched))


def summary(now: GpuReading | None) -> str:
    """A reading in one line, for people."""
    if now is None:
        return "the driver gives no state"
    parts = [
        _told("SM {} MHz", now.sm_clock_mhz),
        _told("memory {} MHz", now.memory_clock_mhz),
        _told("{} C", now.temperature_c),
        _told("{} W", now.power_w),
        _told("of {} W", now.power_limit_w),
        _told("{}% used", now.utilisation_percent),
        _told("{} MiB taken", now.memory_used_mib),
        _told("{} foreign processes", now.foreign_processes or None),
        _told("MIG {}", now.mig),
        _told("held down by {}", ", ".join(now.throttled_by) or None),
        "persistence off" if now.persistence is False else "",
    ]
    return ", ".join(filter(None, parts)).replace(" W, of", " of")


def _told(text: str, value: object) -> str:
    return "" if value is None else text.format(value)


def _query(uuid: str) -> dict[str, str]:
    """Words by field, without those that this driver does not know; empty: no answer."""
    refused = _refused.setdefault(shutil.which("nvidia-smi") or "", set())
    while fields := [field for field in FIELDS if field not in refused]:
        text, ok = _ask(uuid, f"--query-gpu={','.join(fields)}")
        unknown = set(_REFUSED_FIELD.findall(text)).intersection(fields)
        if unknown:
            refused |= unknown
            continue
        words = [word.strip() for word in text.partition("\n")[0].split(",")]
        return dict(zip(fields, words, strict=True)) if ok and len(words) == len(fields) else {}
    return {}


def _compute_processes(uuid: str) -> list[int] | None:
    text, ok = _ask(uuid, "--query-compute-apps=pid")
    return [int(line) for line in text.split("\n") if line.strip().isdigit()] if ok else None


def _ask(uuid: str, query: str) -> tuple[str, bool]:
    """What ``nvidia-smi`` printed, on either stream, and whether it went well."""
    command = ["nvidia-smi", f"--id={uuid}", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "", False
    return (done.stdout + done.stderr).strip(), done.returncode == 0


def _sees_all_processes() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _holds(pid: int, nodes: re.Pattern[str]) -> bool:
    """True when a process has such a file open."""
    with contextlib.suppress(OSError):
        return any(nodes.fullmatch(_link(entry)) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _link(entry: Path) -> str:
    """Where a descriptor leads; "" once it is closed, as that of the listing itself is."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def _reasons(values: dict[str, str]) -> tuple[str, ...]:
    """Active reasons but idleness, from whichever mask the driver knows."""
    for field in _REASON_MASKS:
        mask = _parse(values.get(field), lambda word: int(word, 16))
        if mask is not None:
            bits = [1 << n for n in range(mask.bit_length()) if mask >> n & 1]
            return tuple(REASONS.get(bit, f"reason {bit:#x}") for bit in bits if bit != 1)
    return ()


def _integer(word: str | None) -> int | None:
    number = _number(word)
    return None if number is None else round(number)


def _number(word: str | None) -> float | None:
    number: float | None = _parse(word, float)
    return number if number is not None and abs(number) < 1e18 else None  # no "nan", no "inf"


def _switch(word: str | None) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(word or "")


def _word(word: str | None) -> str | None:
    return None if not word or word.startswith("[") or word == "N/A" else word


def _parse(word: str | None, convert: Callable[[str], Any]) -> Any:
    try:
        return None if word is None else convert(word)
    except ValueError:
        return None
