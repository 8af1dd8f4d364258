"""The fused task with CUDA tensors: the same referee, worker and interface (`make test-gpu`)."""

import importlib.util
import shutil
import subprocess

import pytest

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from tasks.loader import load_task, submission_dir
from transcripts.records import Grade


def first_gpu() -> str | None:
    """UUID of the first GPU, None without one or without torch and triton."""
    if not shutil.which("nvidia-smi") or not importlib.util.find_spec("triton"):
        return None
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, check=False, timeout=60)
    return listed.stdout.split()[0] if listed.returncode == 0 and listed.stdout.strip() else None


GPU = first_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU with torch and triton"),
]


def graded(kind: str) -> Grade:
    task = load_task("fused-softmax-topk")
    request = GradeRequest(task, submission_dir(task, kind), mode="isolated", device=GPU or "")
    return RefereeGrader().grade(request)


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_honest_submissions_pass_on_cuda_tensors(kind: str) -> None:
    grade = graded(kind)
    assert grade.result == "pass", grade.message
    assert grade.device.uuid == GPU
    assert len(grade.timings) == len(load_task("fused-softmax-topk").shapes)


def test_the_wrong_submission_fails_on_cuda_tensors_too() -> None:
    assert graded("wrong").result in ("wrong", "nan")
