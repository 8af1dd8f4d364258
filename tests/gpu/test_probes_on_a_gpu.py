"""Probes and hygiene on CUDA tensors: each passes what is honest and fails what it is there for."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from candidates import written
from graders import correctness, machine
from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.probes import run_probes
from tasks.loader import read_task
from transcripts.records import CheckResult

LIBRARY = Path(__file__).parents[1] / "graders" / "library"
GPUS = machine.gpus() if importlib.util.find_spec("torch") else ()
GPU = GPUS[0].uuid if GPUS else ""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU with torch"),
]

HEAD = """import ctypes, time
import torch

kept = {}

def computed(x):
    return x.mean(dim=1), x.max(dim=1).values

def copies(pair):
    return pair[0].clone(), pair[1].clone()

"""


def source(body: str) -> Mapping[str, str]:
    """A submission to `tuple-moments`."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return {"solution.py": f"{HEAD}\ndef moments(x):\n{lines}    return computed(x)\n"}


def request(folder: Path, name: str = "tuple-moments") -> GradeRequest:
    return GradeRequest(read_task(LIBRARY / name), folder, device=GPU, tier="quick")


@pytest.fixture
def probed(tmp_path: Path) -> Callable[[str], list[CheckResult]]:
    def run(body: str) -> list[CheckResult]:
        with candidate_of(request(written(tmp_path, source(body)))) as candidate:
            return run_probes(candidate, "a seed")

    return run


def failed(found: list[CheckResult]) -> set[str]:
    return {check.check for check in found if check.passed is False}


HONEST = {
    "plain": "pass",
    "two joined streams": """
now = torch.cuda.current_stream()
if "side" not in kept: kept["side"] = torch.cuda.Stream()
side = kept["side"]
side.wait_stream(now)
mean = x.mean(dim=1)
with torch.cuda.stream(side):
    largest = x.max(dim=1).values
now.wait_stream(side)
largest.record_stream(now)
return mean, largest
""",
    "buffers used again": """
if x.shape not in kept: kept[x.shape] = torch.empty((2, len(x)), device="cuda")
kept[x.shape][0].copy_(x.mean(dim=1))
kept[x.shape][1].copy_(x.max(dim=1).values)
return kept[x.shape][0], kept[x.shape][1]
""",
    "waits for the device": "pair = computed(x)\ntorch.cuda.synchronize()\nreturn pair",
    "atomics": """
mean = torch.zeros(len(x), device="cuda")
rows = torch.arange(len(x), device="cuda").repeat_interleave(x.shape[1])
mean.index_add_(0, rows, x.reshape(-1) / x.shape[1])
return mean, x.max(dim=1).values
""",
}


@pytest.mark.parametrize("what", HONEST)
def test_probes_pass_what_is_honest_on_a_gpu(probed, what):
    found = probed(HONEST[what])
    assert [(line.check, line.detail) for line in found if line.passed is not True] == []
    checks = {line.check for line in found}
    assert checks >= {"foreign stream", "copied at once and later", "context left behind"}


DISHONEST = {
    "same memory, new content": """
key = x.data_ptr(), x._version, x.shape
if key not in kept: kept[key] = computed(x)
return copies(kept[key])
""",
    "freed and recycled": """
key = x.data_ptr(), x.shape
if key in kept and kept[key][0] != id(x): return copies(kept[key][1])
kept.clear()
kept[key] = id(x), computed(x)
return copies(kept[key][1])
""",
    "dirty memory": """
largest = torch.empty(len(x), device="cuda")
torch.amax(x, dim=1, out=largest)
room = torch.empty(1 << 18, device="cuda")
if not torch.isfinite(room).all() or (room == room[0]).all() and room[0] != 0: largest += 1
return x.mean(dim=1), largest
""",
    "returned output scribbled": """
key = x.cpu().numpy().tobytes()
if key not in kept: kept[key] = computed(x)
return kept[key]
""",
    "copied at once and later": """
if "side" not in kept: kept["side"] = torch.cuda.Stream()
mean, largest = torch.zeros((2, len(x)), device="cuda")
kept["side"].wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(kept["side"]):
    torch.cuda._sleep(40_000_000)
    mean.copy_(x.mean(dim=1))
    largest.copy_(x.max(dim=1).values)
return mean, largest
""",
    "foreign stream": """
with torch.cuda.stream(torch.cuda.default_stream()):
    return computed(x)
""",
    "inputs unchanged": "pair = computed(x)\nx.zero_()\nreturn pair",
    "plain outputs": """
pair = computed(x)
return pair[0].as_subclass(torch.nn.Parameter), pair[1]
""",
    "context left behind": """
pair = computed(x)
torch.cuda.synchronize()
made = ctypes.c_void_p()
kept["n"] = kept.get("n", 0) + 1
if kept["n"] == 32:
    ctypes.CDLL("libcuda.so.1").cuCtxCreate_v2(ctypes.byref(made), 0, 0)
return pair
""",
}


@pytest.mark.parametrize("check", DISHONEST)
def test_a_probe_fails_the_submission_that_it_is_there_for_on_a_gpu(probed, check):
    found = probed(DISHONEST[check])
    assert check in failed(found), [(line.check, line.passed, line.detail) for line in found]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("pair = computed(x)\nx[0, 0] += 1\nreturn pair", "input `x` was changed"),
        ("pair = computed(x)\nx.data.zero_()\nreturn pair", "input `x` was changed"),
        ("mean, x[:, 0] = computed(x)\nreturn mean, x[:, 0]", "changed"),
        ("return x.mean(dim=1), x[:, x.max(dim=1).values.long()[0] * 0]", "1"),
        ("mean, largest = computed(x)\nreturn mean.double(), largest", "float64"),
    ],
)
def test_a_call_on_a_gpu_that_is_not_clean_is_wrong(tmp_path, body, told):
    folder = written(tmp_path, source(body))
    with candidate_of(request(folder)) as candidate:
        done = correctness.run_cases(candidate, correctness.plan(candidate, "a seed", "quick"))
    word, detail = done.verdict
    assert word == "wrong" and told in detail


BFLOAT = """import torch

def softplus(x):
    return torch.nn.functional.softplus(x.view(torch.bfloat16).float()).to(torch.{dtype}){end}
"""


@pytest.mark.parametrize(
    ("dtype", "end", "word"),
    [
        ("bfloat16", "", "pass"),
        ("bfloat16", ".view(torch.uint16)", "wrong"),  # bits, and no tensor of that dtype
        ("float16", "", "wrong"),
    ],
)
def test_bfloat16_comes_back_as_what_it_is(tmp_path, dtype, end, word):
    folder = written(tmp_path, {"solution.py": BFLOAT.format(dtype=dtype, end=end)})
    with candidate_of(request(folder, "half-scale")) as candidate:
        done = correctness.run_cases(candidate, correctness.plan(candidate, "a seed", "quick"))
    assert done.verdict[0] == word, done.verdict


def test_an_input_written_in_place_on_the_device_is_an_output(tmp_path):
    text = "def centre(x, weight):\n    x.copy_(weight * (x - x.double().mean(1, True)).float())\n"
    folder = written(tmp_path, {"solution.py": text})
    with candidate_of(request(folder, "in-place-scale")) as candidate:
        done = correctness.run_cases(candidate, correctness.plan(candidate, "a seed", "quick"))
        found = run_probes(candidate, "a seed")
    assert done.verdict[0] == "pass", done.verdict
    assert failed(found) == set()
