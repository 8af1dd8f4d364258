"""Compare the outputs of a kept call with the reference, where they are."""

from collections.abc import Mapping
from typing import Any

from graders.candidate import Candidate, Draw
from graders.closeness import compare_all, stated
from graders.errors import SubmissionFailed
from graders.pacing.chain import Kept
from graders.pacing.memory import Memory
from graders.pacing.pools import Pools, dtype_of
from graders.tensors import to_host, works_on

Arrays = Mapping[str, Any]


def verify(candidate: Candidate, memory: Memory, pools: Pools, kept: Kept, outputs: Arrays) -> None:
    """Raises SubmissionFailed with the first output that is wrong."""
    inputs = pools.inputs(kept.begins)
    on_device = memory.is_device and compares_on_device(candidate)
    if memory.is_device and not on_device:
        inputs = {name: to_host(tensor) for name, tensor in inputs.items()}
    expected = candidate.expected(Draw(pools.states[kept.state], [inputs]))[0]

    def host_inputs() -> Arrays:
        return {name: to_host(value) for name, value in inputs.items()}

    for name, wanted in expected.items():
        if on_device and close_on_device(candidate, name, outputs[name], wanted):
            continue
        given, right = {name: to_host(outputs[name])}, {name: to_host(wanted)}
        (close,) = compare_all(candidate.task, None, given, right, host_inputs())
        if not close.passed:
            told = f"paced call {kept.call}: {close.leaf}: {close.detail}"
            raise SubmissionFailed(close.word, told)


def compares_on_device(candidate: Candidate) -> bool:
    """Whether the task's reference takes tensors of the device."""
    return works_on(candidate.reference, candidate.device)


def close_on_device(candidate: Candidate, name: str, out: Any, ref: Any) -> bool:
    """The rule of `graders.closeness` in torch: True when it certainly passes, no more said."""
    raw = candidate.task.interface.raw_outputs.get(name)
    limits = stated(candidate.task, raw or dtype_of(ref), ref.numel())
    if not ref.is_floating_point():
        return bool((out == ref).all())
    exact, given = ref.double(), out.double()
    if not bool(exact.isfinite().all() & given.isfinite().all()):
        return False  # rare enough for the careful way
    error = (given - exact).abs()
    if bool((error > limits.atol + limits.rtol * exact.abs()).any()):
        return False
    if limits.rms_ratio is None:
        return True
    norm = exact.square().mean().sqrt()
    return bool(error.square().mean().sqrt() <= limits.rms_ratio * norm)
