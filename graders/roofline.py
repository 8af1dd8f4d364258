"""Roofline: what a time means against what the device reaches.

The *score fraction* is the achieved rate of the task's regime over the peak of that regime: byte/s
of the declared score work over bandwidth, or FLOP/s over compute. The *roof fraction* is the least
time that any work of that intensity needs over the time taken: against
``min(peak compute, intensity x bandwidth)``. On a CPU both use the ceilings that were measured in
the same run; on a GPU the datasheet's, as the public boards do. The *measured fraction* stands
beside: the same rate over the ceiling that was measured on that very device (`trusted_ceiling`,
`trusted_gpu_ceiling`), which no datasheet promises and every board of the same name differs in.
"""

from dataclasses import dataclass

from tasks import hardware
from tasks.formula import evaluate
from tasks.rawfloats import itemsize
from tasks.spec import Shape, Task
from transcripts.records import DeviceState

_MEASURED_AS = {"float16": "bfloat16"}
"""Dtypes whose matrix products run at the rate of another's, by every row of the table."""


@dataclass(frozen=True)
class ShapeWork:
    """Declared work of one call, in FLOPs and bytes, and the least that these inputs need."""

    flops: float
    bytes: float
    floor_flops: float
    floor_bytes: float


@dataclass(frozen=True)
class Peaks:
    """1e9 byte/s and 1e9 FLOP/s, and where they come from."""

    bandwidth_gbs: float | None
    gflops: float | None
    source: str  # "measured" or "datasheet"


@dataclass(frozen=True)
class Standing:
    """One shape against the peaks."""

    achieved: float  # GB/s or GFLOP/s, by regime
    unit: str
    score_fraction: float | None
    roof_fraction: float | None
    measured_fraction: float | None  # of the ceiling measured on this device


def work(task: Task, shape: Shape) -> ShapeWork:
    """The formulas of the task at this shape. Raises BadFormula."""
    names = {**shape.dims, "itemsize": itemsize(shape.dtype)}
    return ShapeWork(
        *(
            evaluate(text, names)
            for text in (
                task.work.flops,
                task.work.bytes,
                task.work.floor_flops,
                task.work.floor_bytes,
            )
        )
    )


def peaks(device: DeviceState, dtype: str) -> Peaks:
    """The datasheet's where the hardware table has the device, else those measured in this run."""
    row = hardware.load().get(device.hardware)
    if row is not None and row.peaks == "datasheet":
        teraflops = row.tflops.get(dtype)
        return Peaks(row.bandwidth_gbs, teraflops and teraflops * 1e3, "datasheet")
    return measured_peaks(device, dtype)


def measured_peaks(device: DeviceState, dtype: str) -> Peaks:
    """What was measured on this device; a GPU's compute only for dtypes that a GEMM measured."""
    if device.kind == "cpu" or dtype == "float32":
        return Peaks(device.measured_bandwidth_gbs, device.measured_gflops, "measured")
    gflops = device.measured_gflops_by_dtype.get(_MEASURED_AS.get(dtype, dtype))
    return Peaks(device.measured_bandwidth_gbs, gflops, "measured")


def standing(task: Task, shape: Shape, milliseconds: float, device: DeviceState) -> Standing:
    """Where a time of one call stands."""
    done, top = work(task, shape), peaks(device, shape.dtype)
    by_memory = task.regime == "memory"
    achieved = (done.bytes if by_memory else done.flops) / milliseconds / 1e6
    peak, reached = (
        found.bandwidth_gbs if by_memory else found.gflops
        for found in (top, measured_peaks(device, shape.dtype))
    )
    roof = least_ms(done.flops, done.bytes, top)
    return Standing(
        achieved,
        "GB/s" if by_memory else "GFLOP/s",
        achieved / peak if peak else None,
        roof / milliseconds if roof else None,
        achieved / reached if reached else None,
    )


def least_ms(flops: float, byte_count: float, top: Peaks) -> float | None:
    """Milliseconds that work of so many FLOPs and bytes needs at the peaks."""
    if not top.bandwidth_gbs or not top.gflops:
        return None
    return max(byte_count / top.bandwidth_gbs, flops / top.gflops) / 1e6
