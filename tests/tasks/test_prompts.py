"""What every request must say, and what none may: read from the task's own data."""

import re

import pytest

from tasks.loader import load_task, task_names
from tasks.spec import Shape, Task

GPU_TASKS = [name for name in task_names() if "cuda" in load_task(name).devices]
NOTHING = 1e-20  # an absolute limit that only keeps zero from being compared relatively
UNSAID = re.compile(
    r"\b(evaluat\w+|grad(er|ed|ing)|rubric|leaderboard|roofline|peak|TFLOP\w*|GB/s)\b",
    re.IGNORECASE,
)


@pytest.fixture(params=task_names())
def task(request: pytest.FixtureRequest) -> Task:
    return load_task(request.param)


def numbers(text: str) -> set[float]:
    """All numbers of a text; ``131,072`` is one, and so is each of ``(1, 16)``."""
    joined = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", joined)
    powers = [float(a) ** float(b) for a, b in re.findall(r"\b(\d+)\*\*(-?\d+)", text)]
    per_cent = [
        round(float(n) / 100, 9) for n in re.findall(r"(\d+(?:\.\d+)?)\s?(?:%|per cent)", text)
    ]
    return {float(number) for number in found} | set(powers) | set(per_cent)


def test_a_request_names_its_file_and_its_entries(task: Task) -> None:
    assert task.interface.file in task.prompt
    for entry in task.interface.entries:
        assert entry.name in task.prompt or entry.optional, entry.name


@pytest.mark.parametrize("name", GPU_TASKS)
def test_a_request_tells_every_size_and_tolerance(name: str) -> None:
    task = load_task(name)
    said = numbers(task.prompt)

    def missing(shape: Shape) -> set[float]:
        return {float(size) for size in shape.dims.values()} - said

    assert {shape.name: missing(shape) for shape in task.shapes if missing(shape)} == {}
    for dtype, tolerance in task.tolerance.items():
        limits = {limit for limit in (tolerance.atol, tolerance.rtol) if limit > NOTHING}
        assert limits <= said, dtype
    for dtype, ratio in task.gate.rms_ratio.items():
        assert ratio in said, dtype


def test_a_request_gives_away_nothing_and_sounds_like_a_colleague(task: Task) -> None:
    assert sorted({match.group() for match in UNSAID.finditer(task.prompt)}) == []
