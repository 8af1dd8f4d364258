"""What `doctor` says of GPUs, by the words of a driver that is put in front of it."""

import os

import pytest

from drivers import LOST, install, state
from graders import machine
from orchestrator.doctor import examine


@pytest.fixture
def found(monkeypatch, tmp_path):
    """The findings by topic on a machine whose driver answers so."""

    def look(*states):
        if states:
            install(tmp_path / "driver", *states)
        path = [*([str(tmp_path / "driver")] if states else []), os.environ["PATH"]]
        monkeypatch.setenv("PATH", os.pathsep.join(path))
        machine.gpus.cache_clear()
        return {finding.topic: finding for finding in examine(tmp_path)}

    yield look
    machine.gpus.cache_clear()


def test_a_gpu_is_shown_with_its_state_and_its_row_of_peaks(found):
    gpu = found(state())["GPU GPU-1"]
    assert gpu.ok and not gpu.fix and not gpu.needed
    assert gpu.detail.startswith("NVIDIA H200, driver 580.82.07, SM 1980 MHz")
    assert "31 C, 117.04 of 700.0 W" in gpu.detail and gpu.detail.endswith("; peaks of H200")


def test_a_gpu_that_is_in_use_comes_with_what_to_do(found):
    gpu = found(state(processes=[1, 2]))["GPU GPU-1"]
    assert not gpu.ok and "end them, or wait" in gpu.fix


def test_a_gpu_of_no_row_says_what_it_is_held_against(found):
    gpu = found(state(name="NVIDIA Unheard-of"))["GPU GPU-1"]
    assert gpu.detail.endswith("no row of peaks: held against what it measures")


def test_each_tool_of_gpu_grading_is_there_or_comes_with_a_fix(found):
    tools = {topic: one for topic, one in found(state()).items() if "GPU grading" in topic}
    assert {topic.split(": ")[1] for topic in tools} == {
        *("torch", "triton", "nvcc", "ninja", "bubblewrap")
    }
    for tool in tools.values():
        assert not tool.needed and bool(tool.fix) != tool.ok


def test_a_driver_without_gpus_is_told_and_nothing_more(found):
    findings = found(LOST)
    assert findings["GPU"].detail.startswith("the driver names none")
    assert not [topic for topic in findings if topic.startswith("GPU ")]
