"""State, ceilings and qualification of a real GPU (`make test-gpu`)."""

import importlib.util
from pathlib import Path

import pytest

from graders import gpu_ceiling, gpu_rules, gpu_state, machine, qualification
from tasks import hardware

GPUS = machine.gpus() if importlib.util.find_spec("triton") else ()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs an NVIDIA GPU with torch and triton"),
]


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that remembers nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gpu_ceiling, "_known", {})


def test_an_idle_gpu_says_how_it_is() -> None:
    now = gpu_rules.settled(GPUS[0].uuid)
    assert gpu_rules.busy(now) == "", gpu_state.summary(now)
    assert now is not None and now.sm_clock_mhz and now.temperature_c
    assert now.memory_used_mib is not None
    assert now.foreign_processes == 0


def test_the_ceilings_are_below_the_datasheet_and_near_it_and_remembered() -> None:
    uuid = GPUS[0].uuid
    found = gpu_ceiling.ceilings(uuid, "bubblewrap")
    row = hardware.load().get(hardware.match(GPUS[0].name) or "")
    if row is not None and row.bandwidth_gbs is not None:
        assert 0.75 < found.bandwidth_gbs / row.bandwidth_gbs < 1.0
        for name, gflops in {"float32": found.gflops, **found.gflops_by_dtype}.items():
            assert 0.5 < gflops / row.tflops[name] / 1e3 < 1.05, name
    assert gpu_ceiling.recalled(uuid) == found


def test_triton_and_cuda_build_and_qualify_twice_within_a_tenth() -> None:
    uuid = GPUS[0].uuid
    runs = [qualification.qualify(uuid, "bubblewrap").languages for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        assert first.milliseconds == pytest.approx(second.milliseconds, rel=0.1), first.language
    triton, cuda = runs[0]
    assert triton.milliseconds == pytest.approx(cuda.milliseconds, rel=0.25)
