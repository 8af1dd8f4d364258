"""A sandbox with a GPU computes on that one; one without sees none (`make test-gpu`)."""

import importlib.util
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graders import machine
from graders.surroundings import of_device, packages_of, toolchain_of
from sandboxes.base import Limits, Sandbox, SandboxSpec
from sandboxes.registry import ISOLATED, provider
from tasks.loader import load_task

GPUS = machine.gpus() if importlib.util.find_spec("triton") else ()
TASK = load_task("topk")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs an NVIDIA GPU with torch and triton"),
]

COMPUTE = """
import torch
x = torch.randn(512, 512, device="cuda", dtype=torch.float64)
y = torch.linalg.inv(x) @ x
off = (y - torch.eye(512, device="cuda", dtype=torch.float64)).abs().max().item()
print(torch.cuda.device_count(), f"GPU-{torch.cuda.get_device_properties(0).uuid}", off < 1e-6)
"""
LAUNCH = """
import torch, triton, triton.language as tl

@triton.jit
def twice(pointer, n: tl.constexpr):
    at = pointer + tl.arange(0, n)
    tl.store(at, 2 * tl.load(at))

x = torch.arange(1024.0, device="cuda")
twice[(1,)](x, 1024)
print(x.sum().item())
"""
LOOK = """
import torch
print(torch.cuda.is_available())
"""


@pytest.fixture(params=ISOLATED)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Sandbox]]:
    """A sandbox as a session on that device gets it."""
    maker = provider(request.param)
    if (reason := maker.unavailable_reason()) is not None:
        pytest.skip(f"{request.param}: {reason}")
    started: list[Sandbox] = []

    def begin(device: str) -> Sandbox:
        toolchain = toolchain_of(packages_of(TASK, "cuda"))
        spec = SandboxSpec(
            session_id=uuid.uuid4().hex,
            owner="the-tests",
            state_dir=tmp_path / str(len(started)),
            mounts=toolchain.mounts,
            env={**toolchain.env, **of_device(toolchain, device)},
            limits=Limits(memory_bytes=16 << 30),
            gpus=() if device == "cpu" else (device,),
        )
        started.append(maker.start(spec))
        return started[-1]

    yield begin
    for sandbox in started:
        sandbox.close()


def python(sandbox: Sandbox, text: str) -> str:
    sandbox.put("look.py", text.encode())
    result = sandbox.exec(["python3", "look.py"], timeout_s=240)
    assert result.exit_code == 0, result.output.decode()
    return result.output.decode().splitlines()[-1]


def test_torch_and_triton_work_on_the_gpu_that_was_given(start) -> None:
    sandbox = start(GPUS[0].uuid)
    assert python(sandbox, COMPUTE) == f"1 {GPUS[0].uuid} True"
    assert python(sandbox, LAUNCH) == str(float(2 * sum(range(1024))))


def test_without_a_gpu_there_is_none(start) -> None:
    assert python(start("cpu"), LOOK) == "False"
