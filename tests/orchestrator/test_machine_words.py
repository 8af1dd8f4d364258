"""What a session is told of its machine: what is there, and never how fast it is."""

import re

import pytest

from graders import machine
from graders.machine import Gpu
from orchestrator.machine_words import about_machine
from tasks.loader import load_task

H200 = Gpu("GPU-aa", "NVIDIA H200", "570", "9.0", "143771")


@pytest.fixture
def with_gpu(monkeypatch):
    """A host whose driver answers; no test machine has to have one."""
    monkeypatch.setattr(machine, "gpus", lambda: (H200,))
    tools = {"python": "3.12.3", "torch": "2.11.0+cu130", "triton": "3.6.0", "gcc": "13.3.0"}
    tools |= {"nvcc": "Build cuda_13.0.r13.0/compiler.36424714_0", "numpy": "2.4.6"}
    monkeypatch.setattr(machine, "versions", lambda _: tuple(tools.items()))


def test_a_gpu_is_named_with_the_tools_of_the_languages_that_the_task_takes(with_gpu):
    assert about_machine(load_task("topk"), "GPU-aa") == (
        "You are on a machine with one NVIDIA H200 (compute capability 9.0, 140 GiB of memory); "
        "there is Python 3.12.3, torch 2.11.0, Triton 3.6.0, nvcc 13.0."
    )
    assert "Triton" not in about_machine(load_task("nsa"), "GPU-aa")


def test_a_task_of_tensors_on_a_cpu_is_a_rehearsal():
    told = about_machine(load_task("nsa"), "cpu")
    assert "rehearsal" in told and "without a GPU" in told
    assert "rehearsal" not in about_machine(load_task("kv-cache"), "cpu")


@pytest.mark.parametrize("name", ["topk", "nsa", "kv-cache", "fused-softmax-topk"])
def test_no_figure_of_speed_and_no_word_of_a_test(with_gpu, name):
    for device in ("cpu", "GPU-aa"):
        told = about_machine(load_task(name), device)
        assert not re.search(r"FLOP|GB/s|TB/s|peak|evaluat|grad(e|ing)|score", told, re.IGNORECASE)
