"""Compare the outputs of a kept call with the reference, where they are."""

from collections.abc import Mapping
from typing import Any

from graders.candidate import Candidate, Draw
from graders.closeness import Bounds, bounds, compare
from graders.errors import SubmissionFailed
from graders.pacing.chain import Kept
from graders.pacing.memory import Memory
from graders.pacing.pools import Pools

Arrays = Mapping[str, Any]


def verify(candidate: Candidate, memory: Memory, pools: Pools, kept: Kept, outputs: Arrays) -> None:
    """Raises SubmissionFailed with the first output that is wrong."""
    inputs = pools.inputs(kept.begins)
    on_device = memory.is_device and compares_on_device(candidate)
    if memory.is_device and not on_device:
        inputs = {name: host(tensor) for name, tensor in inputs.items()}
    expected = candidate.expected(Draw(pools.params, [inputs]))[0]
    for name, wanted in expected.items():
        out = outputs[name]
        if on_device:
            limits = bounds(candidate.task, None, host_like(wanted))
            if close_on_device(out, wanted, limits):
                continue
        close = compare(name, host(out), host(wanted), bounds(candidate.task, None, host(wanted)))
        if not close.passed:
            told = f"paced call {kept.call}: {close.leaf}: {close.detail}"
            raise SubmissionFailed(close.word, told)


def compares_on_device(candidate: Candidate) -> bool:
    """Whether the task's reference takes tensors of the device."""
    return bool(getattr(candidate.reference, "ON_DEVICE", False))


def close_on_device(out: Any, ref: Any, limits: Bounds) -> bool:
    """The rule of `graders.closeness` in torch: True when it certainly passes, no more said."""
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


def host(array: Any) -> Any:
    """A NumPy array; bfloat16 as its bits."""
    if not hasattr(array, "is_cuda"):
        return array
    narrow = str(array.dtype) == "torch.bfloat16"
    return (array.view(__import__("torch").uint16) if narrow else array).cpu().numpy()


def host_like(array: Any) -> Any:
    """Something with the dtype's name and the size that `bounds` asks for."""

    class Like:
        dtype = str(array.dtype).removeprefix("torch.")
        size = array.numel()

    return Like
