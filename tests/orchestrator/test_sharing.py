"""Where the tasks of a sweep work, and a sweep of a task for a GPU rehearsed on the CPU."""

import pytest

from graders.machine import Gpu
from orchestrator.devices import NoSuchGpu
from orchestrator.errors import UserError
from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from orchestrator.sharing import Devices, Wanted, chosen_devices
from tasks.loader import load_task
from transcripts.events import CheckRun
from transcripts.words import End


def said():
    lines = []
    return lines, lines.append


def test_tasks_of_the_cpu_need_nothing():
    _, say = said()
    tasks = [load_task("kv-cache"), load_task("layernorm-backward")]
    chosen = chosen_devices(tasks, "rounds", Wanted(), say)
    assert chosen == Devices()
    assert chosen.seats() is None
    assert chosen.of("kv-cache") == "cpu"


def test_a_task_of_both_runs_on_its_decks_hardware_and_that_is_said():
    lines, say = said()
    chosen = chosen_devices([load_task("fused-softmax-topk")], "rounds", Wanted(), say)
    assert chosen.of("fused-softmax-topk") == "cpu"
    assert "canonical hardware" in lines[0]


def test_a_task_for_a_gpu_is_refused_where_none_is_and_rehearsed_on_request(monkeypatch):
    monkeypatch.setattr("graders.machine.gpus", lambda: ())
    _, say = said()
    with pytest.raises(UserError, match="--device cpu"):
        chosen_devices([load_task("topk")], "hard", Wanted(), say)
    with pytest.raises(NoSuchGpu, match="no GPU here is"):
        chosen_devices([load_task("topk")], "hard", Wanted(("GPU-1",)), say)
    rehearsed = chosen_devices([load_task("topk")], "hard", Wanted(device="cpu"), say)
    assert rehearsed.of("topk") == "cpu"


def test_the_gpu_is_for_tasks_that_use_one(monkeypatch):
    there = (Gpu("GPU-aa", "NVIDIA H200", "570"), Gpu("GPU-bb", "NVIDIA H200", "570"))
    monkeypatch.setattr("graders.machine.gpus", lambda: there)
    _, say = said()
    tasks = [load_task("kv-cache"), load_task("fused-softmax-topk")]
    chosen = chosen_devices(tasks, "rounds", Wanted(("GPU-b", "GPU-a"), per_gpu=2), say)
    assert chosen.on_gpu == {"fused-softmax-topk"}
    assert chosen.gpus == ("GPU-bb", "GPU-aa")
    assert (chosen.of("kv-cache"), chosen.of("fused-softmax-topk")) == ("cpu", "GPU-bb")


def test_the_device_is_not_said_twice():
    with pytest.raises(UserError, match="say the device twice"):
        chosen_devices([], "rounds", Wanted(("GPU-a",), "cpu"), lambda _: None)


def test_a_session_rehearses_a_task_for_a_gpu(tmp_path):
    pytest.importorskip("triton", reason="the task's kernels are Triton's")
    request = SweepRequest(
        archive=tmp_path / "archive",
        models=["oracle"],
        deck="hard",
        tasks=["topk"],
        devices=Wanted(device="cpu"),
    )
    with prepared(request, Progress(live=False)) as sweep:
        result = sweep.run_sessions()
        assert not result.defects
        (folder,) = sweep.archive.attempts()
    assert folder.record.outcome.end is End.SUBMITTED
    (check,) = (event for event in folder.events() if isinstance(event, CheckRun))
    assert check.passed
