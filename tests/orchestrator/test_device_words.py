"""What `grade --explain` says of a device: fractions, measured ceilings, and a GPU's state."""

from datetime import UTC, datetime

import pytest

from orchestrator.boards.records import CellScore
from orchestrator.boards.wording import time_text
from orchestrator.device_words import device_lines
from tasks.loader import load_task
from transcripts.records import DeviceState, Fingerprint, GpuReading, Grade, ShapeTiming
from transcripts.words import GradeResult

H200 = DeviceState(
    kind="cuda",
    name="NVIDIA H200",
    uuid="GPU-1",
    hardware="H200",
    measured_bandwidth_gbs=4000.0,
    measured_gflops=51e3,
    measured_gflops_by_dtype={"bfloat16": 750e3},
    before=GpuReading(sm_clock_mhz=345, temperature_c=31),
    after=GpuReading(sm_clock_mhz=1980, throttled_by=("sw_power_cap",)),
)


@pytest.fixture
def grade():
    """One timed shape of the fused task on an H200."""
    task = load_task("fused-softmax-topk")
    timing = ShapeTiming(
        shape=task.shapes[0].name,
        method="referee_clock",
        certified=True,
        calls=9,
        median_ms=0.01,
        ci_low_ms=0.01,
        ci_high_ms=0.01,
        min_ms=0.01,
    )
    return Grade(
        grade_id="g",
        attempt_id=None,
        attempt_seal=None,
        submission_digest="5" * 64,
        task=task.name,
        task_digest=task.digest,
        checks_digest="6" * 64,
        timing_digest="7" * 64,
        toolchain_digest="8" * 64,
        scoring_version=1,
        mode="isolated",
        tier="full",
        isolation="bubblewrap",
        result=GradeResult.PASS,
        seed="s",
        device=H200,
        timings=(timing,),
        fingerprint=Fingerprint(
            product_version="0",
            code_digest="c",
            python="3.11",
            platform="linux",
            kernel="6",
            cpu="x",
            cores=2,
            memory_bytes=1,
            host="h",
            sandbox="bubblewrap",
        ),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
    )


def test_a_gpus_grade_tells_both_fractions_its_ceilings_and_its_state(grade):
    shape, device, before, after = device_lines(grade)
    rate = float(shape.split()[1])
    assert f"{rate / 4800:.1%} of the peak" in shape
    assert f"{rate / 4000:.1%} of the ceiling measured on this device" in shape
    assert device == (
        "  device NVIDIA H200 GPU-1, measured to reach 4000 GB/s, 51 TFLOP/s float32, "
        "750 TFLOP/s bfloat16; seed s"
    )
    assert before == "  before: SM 345 MHz, 31 C"
    assert after == "  after: SM 1980 MHz, held down by sw_power_cap"


def test_formulas_of_another_version_of_the_task_are_not_applied(grade):
    other = grade.model_copy(update={"task_digest": "0" * 64})
    gone = grade.model_copy(update={"task": "no-such-task"})
    for found in (other, gone):
        assert next(iter(device_lines(found))).startswith("  device NVIDIA H200")


def test_a_board_puts_the_measured_fraction_in_brackets():
    cell = CellScore(value=0.5, low=0.5, high=0.5, milliseconds=1.5, roofline=0.41, measured=0.52)
    assert time_text(cell) == "1.5 ms 41% (52%)"
    assert time_text(cell.model_copy(update={"measured": None})) == "1.5 ms 41%"
