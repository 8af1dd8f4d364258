"""How a grade stands against its device, in words: fractions, measured ceilings, and its state."""

from collections.abc import Iterable, Sequence

from graders.gpu_state import summary
from graders.scoring import ShapeScore, score
from tasks.errors import TaskError
from tasks.loader import load_task
from transcripts.records import DeviceState, Grade


def device_lines(grade: Grade) -> Iterable[str]:
    """A line a timed shape, then the device, and for a GPU its state before and after."""
    yield from map(_standing, _shapes(grade))
    yield f"  device {_device(grade.device)}; seed {grade.seed}"
    if grade.device.kind == "cuda":
        yield f"  before: {summary(grade.device.before)}"
        yield f"  after: {summary(grade.device.after)}"


def _shapes(grade: Grade) -> Sequence[ShapeScore]:
    """How its shapes stand by the task's formulas as they are here; nothing for another version."""
    try:
        task = load_task(grade.task)
    except TaskError:
        return ()
    return score(task, None, grade).shapes if task.digest == grade.task_digest else ()


def _standing(shape: ShapeScore) -> str:
    fractions = (
        ("of the peak", shape.peak_fraction),
        ("of the roofline", shape.roof_fraction),
        ("of the ceiling measured on this device", shape.measured_fraction),
    )
    known = [f"{value:.1%} {of}" for of, value in fractions if value is not None]
    known += [f"{shape.speedup:.2f}x as fast as the baseline"] if shape.speedup else []
    return f"  {shape.shape}: {', '.join([f'{shape.achieved:.4g} {shape.unit}', *known])}"


def _device(device: DeviceState) -> str:
    ceilings = {"float32": device.measured_gflops, **device.measured_gflops_by_dtype}
    measured = [f"{_rate(value)} {name}" for name, value in ceilings.items() if value]
    if device.measured_bandwidth_gbs:
        measured.insert(0, f"{device.measured_bandwidth_gbs:.4g} GB/s")
    reaches = f", measured to reach {', '.join(measured)}" if measured else ""
    return f"{device.name}{f' {device.uuid}' if device.uuid else ''}{reaches}"


def _rate(gflops: float) -> str:
    return f"{gflops / 1e3:.4g} TFLOP/s" if gflops >= 1e3 else f"{gflops:.4g} GFLOP/s"
