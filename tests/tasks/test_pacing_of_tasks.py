"""What timing on a GPU asks of each task: outputs, pools, windows and comparison, with tensors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from graders import tensors
from graders.base import GradeRequest
from graders.candidate import Candidate, Draw, candidate_of
from graders.errors import SubmissionFailed
from graders.pacing.chain import Kept, Output, handed_over, outputs_of, slots_of
from graders.pacing.pools import Pools, make_pools, states_of
from graders.pacing.timer import can_be_paced
from graders.pacing.verify import close_on_device, verify
from graders.worker.pacer import aligned
from tasks.deck import load_deck
from tasks.loader import load_task
from tasks.tensors import TensorReference
from tensor_memory import HostTensors, TensorMemory

torch = pytest.importorskip("torch")

NAMES = [cell.task for deck in ("hard", "cuda", "mega") for cell in load_deck(deck).cells]
MEMORY = TensorMemory()
KEY = (3, 5)


@pytest.fixture(params=NAMES)
def candidate(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Candidate]:
    """Of a GPU in name only: its tensors lie in host memory."""
    monkeypatch.setattr(tensors, "use", lambda _uuid: 0)
    task = load_task(request.param)
    with candidate_of(GradeRequest(task, task.folder / "submissions" / "naive")) as found:
        assert isinstance(found.reference, TensorReference)
        reference = HostTensors(found.reference.module, task.interface)
        yield replace(found, device="GPU-in-name-only", reference=reference)


def rounded(outputs: list[Output], expected: dict[str, Any]) -> dict[str, Any]:
    """The reference's outputs in the dtypes that are asked for."""
    return {o.name: expected[o.name].to(getattr(torch, o.dtype)).contiguous() for o in outputs}


def kept_of(call: int, pools: Pools, state: int) -> Kept:
    return Kept(call, tuple(pools.choose()), KEY, (0, 0), 0, state)


def test_each_task_can_be_timed_in_paced_calls(candidate: Candidate) -> None:
    assert can_be_paced(candidate)
    shape = candidate.task.smoke[0]
    states = states_of(candidate, shape, MEMORY)
    outputs = outputs_of(candidate, shape, states[0])
    assert [o.name for o in outputs] == list(candidate.task.interface.outputs)
    pools = make_pools(candidate, shape, MEMORY, 4, states)
    pools.deliver(MEMORY)
    for call in range(3):
        kept = kept_of(call, pools, pools.choose_state())
        inputs = pools.inputs(kept.begins)
        expected = candidate.expected(Draw(states[kept.state], [inputs]))[0]
        right = rounded(outputs, expected)
        assert all(close_on_device(candidate, n, right[n], expected[n]) for n in right)
        verify(candidate, MEMORY, pools, kept, right)
        for output in outputs:
            changed = right[output.name].clone().double()
            changed.view(-1)[0] += 1000
            wrong = {**right, output.name: changed.to(right[output.name].dtype)}
            with pytest.raises(SubmissionFailed, match=output.name):
                verify(candidate, MEMORY, pools, kept, wrong)


def test_what_is_handed_over_has_the_dtypes_asked_for(candidate: Candidate) -> None:
    shape = candidate.task.smoke[0]
    params = states_of(candidate, shape, MEMORY)[0]
    outputs = outputs_of(candidate, shape, params)
    draw = candidate.reference.make_calls({**shape.dims, "dtype": shape.dtype}, 7, "cuda")
    right = rounded(outputs, candidate.expected(Draw(params, draw["calls"]))[0])
    with slots_of(MEMORY, outputs, 1) as slots:
        place = 0
        for output in outputs:
            data = right[output.name].reshape(-1).view(torch.uint8)
            assert data.numel() == output.size
            slots.array("uint8")[place : place + output.size] = data
            place += aligned(output.size)
        digest = MEMORY.digest(list(right.values()), KEY)
        found = handed_over(MEMORY, outputs, slots, Kept(0, (), KEY, digest, 0, 0))
    assert all(torch.equal(found[name], right[name]) for name in right)
