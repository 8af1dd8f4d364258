"""Ledgers of real profiles: languages, phases that agree, graphs, decoys (`make test-gpu`)."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graders import machine
from graders.base import GradeRequest
from graders.candidate import Candidate, candidate_of
from graders.ledger import take
from graders.survey import Survey, survey
from tasks.loader import load_task, read_task, submission_dir
from tasks.spec import Task
from transcripts.records import CheckResult

HERE = Path(__file__).parents[1] / "graders"
GPUS = machine.gpus() if importlib.util.find_spec("triton") else ()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs an NVIDIA GPU with torch and triton"),
]

TRITON = (HERE / "library/row-softmax/submissions/oracle/solution.py").read_text()
DECOY = TRITON.replace("    return y\n", "    return x.softmax(1)\n", 1)
GRAPH = (HERE / "honest_gpu/graph.py").read_text()
AUTOTUNED = TRITON.replace(
    "    @triton.jit\n",
    "    @triton.autotune([triton.Config({}, num_warps=w) for w in (4, 8)], key=['n'])\n"
    "    @triton.jit\n",
).replace(", num_warps=warps)", ")")
CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

template <typename T>
__global__ void softmax_rows(const T *x, T *y, int n)
{
    __shared__ float part[256];
    const T *row = x + (long)blockIdx.x * n;
    float peak = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) peak = fmaxf(peak, row[i]);
    part[threadIdx.x] = peak;
    __syncthreads();
    for (int i = 0; i < 256; i++) peak = fmaxf(peak, part[i]);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) sum += expf(row[i] - peak);
    part[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < 256; i++) sum += part[i];
    T *out = y + (long)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += 256) out[i] = expf(row[i] - peak) / sum;
}

torch::Tensor softmax(torch::Tensor x)
{
    auto y = torch::empty_like(x);
    softmax_rows<float><<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
module = load_inline("rows", "torch::Tensor softmax(torch::Tensor x);", SOURCE, functions="softmax")


def softmax(x):
    return module.softmax(x.contiguous())
'''


@contextmanager
def candidate(text: str, folder: Path, task: Task | None = None) -> Iterator[Candidate]:
    (folder / "solution.py").write_text(text)
    task = task or read_task(HERE / "library/row-softmax")
    with candidate_of(GradeRequest(task, folder, device=GPUS[0].uuid)) as found:
        yield found


def surveyed(text: str, folder: Path, spoken: str) -> Survey:
    with candidate(text, folder) as one:
        found = survey(one, "a seed", "quick", spoken)
    assert {ledger.phase for ledger in found.ledgers} >= {"check", "timed"}, found.checks
    return found


def named(found: Survey, check: str) -> CheckResult:
    return next(result for result in found.checks if result.check == check)


@pytest.mark.parametrize("text", [TRITON, AUTOTUNED], ids=["plain", "autotuned"])
def test_triton_does_the_work_and_is_needed(text: str, tmp_path: Path) -> None:
    found = surveyed(text, tmp_path, "triton")
    assert found.language == "triton"
    assert named(found, "kernels by phase").passed is True, found.checks
    assert named(found, "kernels taken out").passed is True, found.checks
    for ledger in found.ledgers:
        assert ledger.launches == 1.0 and ledger.kernels[0].name == "_rows"


def test_cuda_in_a_string_does_the_work_and_is_needed(tmp_path: Path) -> None:
    text = CUDA
    task = read_task(HERE / "library/row-softmax")
    limits = task.limits.model_copy(update={"build_s": 300.0, "total_s": 900.0})
    with candidate(text, tmp_path, task.model_copy(update={"limits": limits})) as one:
        found = survey(one, "a seed", "quick", "eager")
    assert found.language == "cuda_raw", found
    assert named(found, "kernels taken out").passed is True, found.checks


def test_torchs_own_softmax_is_eager_whatever_the_source_says(tmp_path: Path) -> None:
    text = (HERE / "library/row-softmax/submissions/naive/solution.py").read_text()
    found = surveyed(text, tmp_path, "triton")
    assert found.language == "eager"
    assert {kernel.kind for ledger in found.ledgers for kernel in ledger.kernels} <= {
        "eager",
        "memory",
    }


def test_a_kernel_for_show_is_told_and_gives_no_language(tmp_path: Path) -> None:
    found = surveyed(DECOY, tmp_path, "triton")
    shares = {kernel.kind: kernel.gpu_share for kernel in found.ledgers[-1].kernels}
    if shares["triton"] >= 0.5 * (shares["triton"] + shares["eager"]):
        assert named(found, "kernels taken out").passed is False
    assert found.language == "eager"


def test_kernels_of_a_graph_are_seen_and_said_to_be_in_one(tmp_path: Path) -> None:
    found = surveyed(GRAPH, tmp_path, "eager")
    kernels = [kernel for kernel in found.ledgers[-1].kernels if kernel.in_graph]
    assert kernels and "softmax" in kernels[0].name.lower()


def test_a_session_goes_on_after_a_profile(tmp_path: Path) -> None:
    with candidate(TRITON, tmp_path) as one, one.session() as session:
        draw = one.draw(one.task.shapes[0], 1)
        take(session, one, draw, "check", "r8_n1024")
        session.setup(draw.params, 30)
        answer = session.call(draw.calls[0], 1 << 20, 30)
        assert answer.outputs["y"].shape == draw.calls[0]["x"].shape


@pytest.mark.parametrize("name", ["fused-softmax-topk", "w4a16-gemm"])
def test_oracles_with_and_without_weights_have_ledgers(name: str) -> None:
    task = load_task(name)
    request = GradeRequest(task, submission_dir(task, "oracle"), device=GPUS[0].uuid)
    with candidate_of(request) as one:
        found = survey(one, "a seed", "quick", "triton")
    assert found.language == "triton", found
    assert all(check.passed is not False for check in found.checks), found.checks
