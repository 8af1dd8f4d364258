"""Paced calls on a GPU: honest kernels are believed, forgers gain next to nothing."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from graders import machine
from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.errors import SubmissionFailed
from graders.pacing.memory import memory_of
from graders.pacing.samples import PacedSamples
from graders.pacing.timer import time_paced
from tasks.loader import read_task
from tasks.spec import Shape

HERE = Path(__file__).parents[1] / "graders"
TASK = read_task(HERE / "library" / "row-softmax")
SMALL, LARGE = TASK.shapes[0], TASK.shapes[2]
MOST_GAIN, MOST_GAIN_MS = 0.10, 0.002

CAUGHT = {
    "early_answer": {"tampered"},
    "replayed_digest": {"tampered"},
    "fitted_outputs": {"tampered"},
    "skipped_calls": {"wrong"},
    "emptied_pool": {"wrong"},
    "late_write": {"tampered", "wrong", "nan"},
    "lazy_output": {"wrong", "tampered"},
}
GAINING = [
    *("halved_events", "shaved_events", "patched_clocks", "skipped_flush", "worked_ahead"),
    *("lean_calls", "graph_in_chains", "other_results_for_events", "copied_reference"),
    *("worked_between", "stopped_when_full", "looked_ahead"),
]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpus(), reason="needs an NVIDIA GPU with torch and triton"),
]


def timed(solution: Path, shapes: Sequence[Shape], folder: Path) -> list[PacedSamples]:
    shutil.copyfile(solution, folder / "solution.py")
    shutil.copyfile(HERE / "forgers" / "shared.py", folder / "shared.py")
    request = GradeRequest(TASK, folder, device=machine.gpus()[0].uuid)
    with candidate_of(request) as candidate:
        return time_paced(candidate, shapes, "quick")


@pytest.fixture(scope="module")
def honest_ms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """What the kernel that every forger calls takes by its own, honest events."""
    naive = TASK.folder / "submissions" / "naive" / "solution.py"
    found = timed(naive, [SMALL, LARGE], tmp_path_factory.mktemp("naive"))
    claims = {samples.shape: samples.claim for samples in found}
    return {shape: claim.median_ms for shape, claim in claims.items() if claim is not None}


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "honest_gpu").glob("*.py")))
def test_an_honest_kernel_is_believed(name: str, tmp_path: Path) -> None:
    for samples in timed(HERE / "honest_gpu" / f"{name}.py", [SMALL, LARGE], tmp_path):
        assert samples.claim is not None
        assert samples.claim.accepted, samples.claim.why
        assert samples.verified >= 50


@pytest.mark.parametrize("name", CAUGHT)
def test_a_forger_of_answers_is_caught(name: str, tmp_path: Path) -> None:
    with pytest.raises(SubmissionFailed) as caught:
        timed(HERE / "forgers" / name / "solution.py", [SMALL], tmp_path)
    assert caught.value.result in CAUGHT[name], str(caught.value)


@pytest.mark.parametrize("name", GAINING)
def test_a_forger_of_times_gains_next_to_nothing(
    name: str, tmp_path: Path, honest_ms: dict[str, float]
) -> None:
    for samples in timed(HERE / "forgers" / name / "solution.py", [SMALL, LARGE], tmp_path):
        gain = honest_ms[samples.shape] - samples.summary().median_ms
        assert gain <= max(MOST_GAIN * honest_ms[samples.shape], MOST_GAIN_MS), samples.claim


def test_no_device_memory_is_left(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    naive = TASK.folder / "submissions" / "naive" / "solution.py"
    timed(naive, [SMALL], tmp_path)
    free, _ = torch.cuda.mem_get_info()
    timed(naive, [LARGE], tmp_path)
    assert torch.cuda.mem_get_info()[0] >= free - (64 << 20)


def test_a_digest_binds_to_each_of_many_outputs() -> None:
    memory = memory_of(machine.gpus()[0].uuid)
    torch = pytest.importorskip("torch")
    arrays = [torch.full((n + 1, 37), n, dtype=torch.bfloat16, device="cuda") for n in range(24)]
    whole = memory.digest(arrays, (1, 2))
    assert memory.digest(arrays, (1, 2)) == whole != memory.digest(arrays, (1, 3))
    for array in arrays:
        array[-1, -1] += 1
        assert memory.digest(arrays, (1, 2)) != whole
        array[-1, -1] -= 1
    assert memory.digest(arrays, (1, 2)) == whole
    with pytest.raises(RuntimeError, match="at most"):
        memory.digest([*arrays, arrays[0]], (1, 2))
