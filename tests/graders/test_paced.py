"""Paced calls: what the referee makes of honest workers and of forgers (in host memory)."""

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graders.base import GradeRequest
from graders.candidate import Candidate, candidate_of
from graders.errors import SubmissionFailed
from graders.pacing.chain import FEWEST_SLOTS, Chain, keeping
from graders.pacing.events import believable
from graders.pacing.memory import memory_of
from graders.pacing.pools import pools_of
from graders.pacing.samples import NEAR, PacedSamples, Trusted
from graders.pacing.timer import time_paced
from tasks.loader import read_task

HERE = Path(__file__).parent
TASK = read_task(HERE / "library" / "row-softmax")
SMALL = TASK.shapes[0]

FORGERS = {
    "early_answer": "tampered",
    "replayed_digest": "tampered",
    "fitted_outputs": "tampered",
    "skipped_calls": "wrong",
    "emptied_pool": "wrong",
    "swapped_outputs": "wrong, tampered",
    "late_write": "tampered, wrong, nan",  # by what the memory held and how late it was
    "lazy_output": "",
    "worked_ahead": "",
    "worked_between": "",
    "stopped_when_full": "",
    "copied_reference": "",
    "lean_calls": "",
    "patched_clocks": "",
}
"""What each comes to where its mechanism exists without a GPU; nothing: right results, no gain."""

Submitted = Callable[[str], Candidate]


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[Callable[[Path], "contextmanager[Candidate]"]]:
    @contextmanager
    def candidate(solution: Path) -> Iterator[Candidate]:
        folder = tmp_path / "submission"
        folder.mkdir()
        shutil.copyfile(solution, folder / "solution.py")
        shutil.copyfile(HERE / "forgers" / "shared.py", folder / "shared.py")
        with candidate_of(GradeRequest(TASK, folder)) as found:
            yield found

    yield candidate


def forger(name: str) -> Path:
    return HERE / "forgers" / name / "solution.py"


@pytest.mark.parametrize("name", [name for name, word in FORGERS.items() if word])
def test_a_forger_of_answers_is_caught(name: str, submitted) -> None:
    with submitted(forger(name)) as candidate, pytest.raises(SubmissionFailed) as caught:
        time_paced(candidate, [SMALL], "quick")
    assert caught.value.result in FORGERS[name].split(", "), str(caught.value)


@pytest.mark.parametrize("name", [name for name, word in FORGERS.items() if not word])
def test_right_results_are_timed_however_they_come(name: str, submitted) -> None:
    with submitted(forger(name)) as candidate:
        (samples,) = time_paced(candidate, [SMALL], "quick")
    assert samples.summary().certified
    assert samples.verified >= 40


@pytest.mark.parametrize("name", ["reused_buffer", "atomics", "graph", "two_streams"])
def test_honest_submissions_are_timed(name: str, submitted) -> None:
    with submitted(HERE / "honest_gpu" / f"{name}.py") as candidate:
        (samples,) = time_paced(candidate, [SMALL], "quick")
    assert samples.certified_ms > 0


def test_work_before_the_first_go_is_in_the_figure(submitted) -> None:
    with submitted(forger("worked_between")) as candidate:
        (samples,) = time_paced(candidate, [SMALL], "quick")
    calls = len(samples.chains[0].elapsed_ns)
    assert min(chain.here_ns for chain in samples.chains) > 100_000_000  # as the forger says
    assert samples.certified_ms * calls > 50


@pytest.mark.parametrize("most", [FEWEST_SLOTS, 16, 40, 399])
@pytest.mark.parametrize("calls", [12, 32, 400])
@pytest.mark.parametrize("wanted", [0.05, 0.4, 1.0])
def test_nobody_learns_that_no_later_call_is_looked_at(
    calls: int, most: int, wanted: float
) -> None:
    share, slots = keeping(calls, wanted, most)
    assert 0 < share <= wanted
    assert slots <= min(calls, most)
    others = calls - 1  # the first is always kept
    fitting = sum(
        math.comb(others, n) * share**n * (1 - share) ** (others - n) for n in range(slots - 1)
    )
    assert slots == calls or fitting > 0.995, "the room fills up before the chain ends"


def test_all_calls_are_kept_where_there_is_room() -> None:
    assert keeping(16, 1.0, 16) == (1.0, 16)


def test_no_set_that_is_dealt_whole_comes_again_before_all_have_come(submitted) -> None:
    with submitted(HERE / "honest_gpu" / "atomics.py") as candidate:
        dealt = TASK.interface.model_copy(update={"dealt_inputs": ("x",)})
        asked = dataclasses.replace(candidate, task=TASK.model_copy(update={"interface": dealt}))
        with pools_of(asked, SMALL, memory_of("cpu"), 4, [{}]) as pools:
            begins = [pools.choose()[0] for _ in range(12)]
    assert {len({*begins[n : n + 4]}) for n in (0, 4, 8)} == {4}
    assert {*begins} == {*pools.pools[0].places}


def samples(chains: list[list[int]], events: list[float], own: list[int]) -> PacedSamples:
    made = [Chain(elapsed_ns=chain) for chain in chains]
    trusted = Trusted((Chain(elapsed_ns=own),), ((0.010,), (0.012, 0.013)))
    return PacedSamples("s", made, [trusted], events_ms=events)


def test_a_claim_stands_when_the_clock_bears_it() -> None:
    summary = samples([[120_000] * 9, [115_000] * 9], [0.102, 0.103, 0.104], [25_000]).summary()
    assert summary.method == "cuda_events"
    assert summary.median_ms == 0.103
    assert summary.claim is not None
    assert summary.claim.predicted_ms == pytest.approx(0.100)  # 115 us less 25 - 10


def test_a_claim_a_little_below_counts_as_the_prediction_so_that_shaving_gains_nothing() -> None:
    summary = samples([[120_000] * 9, [115_000] * 9], [0.098] * 9, [25_000]).summary()
    assert summary.method == "paced_estimate"
    assert summary.certified
    assert summary.median_ms == pytest.approx(0.100)
    assert summary.claim is not None
    assert summary.claim.accepted


def test_a_claim_far_below_is_refused_and_the_whole_certified_time_stands() -> None:
    low = 0.100 * (1 - NEAR) - 1e-4
    summary = samples([[120_000] * 9, [115_000] * 9], [low] * 9, [25_000]).summary()
    assert summary.method == "paced_calls"
    assert summary.certified
    assert summary.median_ms == pytest.approx(0.115)
    assert summary.claim is not None
    assert not summary.claim.accepted


def test_work_in_one_call_for_others_is_in_the_figure() -> None:
    hoarder = [[1_000_000] + [1_000] * 99] * 3
    assert samples(hoarder, [], [1_000]).certified_ms == pytest.approx(0.01099)


def test_waits_between_calls_beyond_those_for_our_own_worker_are_in_the_figure() -> None:
    own = Chain(elapsed_ns=[1_000], here_ns=50_000, keeps_ns=[40_000])
    honest = Chain(elapsed_ns=[10_000] * 10, here_ns=90_000, keeps_ns=[50_000, 95_000])
    ahead = Chain(elapsed_ns=[5_000] * 10, here_ns=1_120_000, keeps_ns=[40_000, 2_100_000])
    found = PacedSamples("s", [honest], [Trusted((own,), ((0.001,),))])
    assert found.certified_ms == pytest.approx(0.010)
    found.chains = [ahead]
    assert found.certified_ms == pytest.approx(0.005 + (1.0 + 2.0) / 10)
    assert found.summary().median_ms == found.certified_ms


@pytest.mark.parametrize("name", ["worked_in_gaps", "worked_behind_answers"])
def test_work_between_calls_is_in_the_figure(name: str, submitted) -> None:
    with submitted(forger(name)) as candidate:
        (found,) = time_paced(candidate, [SMALL], "quick")
    for chain in found.chains:  # the forger sleeps 0.2 s where no call is
        told = max(chain.elapsed_ns) if name == "worked_behind_answers" else chain.keeps_ns[0]
        assert told > 2e8
    assert found.certified_ms * len(found.chains[0].elapsed_ns) > 150


@pytest.mark.parametrize("inputs", [{}, {"x": (0, 4)}, {"x": (0, 4), "y": (3, 4)}])
def test_calls_of_empty_inputs_or_none_have_pools(inputs: dict, submitted) -> None:
    def make_inputs(_shape: object, seed: int) -> dict:
        rng = np.random.default_rng(seed)
        call = {name: rng.random(shape, np.float32) for name, shape in inputs.items()}
        return {"params": {}, "calls": [call]}

    with submitted(HERE / "honest_gpu" / "atomics.py") as candidate:
        reference = SimpleNamespace(make_inputs=make_inputs)
        asked = dataclasses.replace(candidate, reference=reference)
        with pools_of(asked, SMALL, memory_of("cpu"), 3, [{}]) as pools:
            pools.deliver(memory_of("cpu"))
            found = pools.inputs(pools.choose())
    assert {name: array.shape for name, array in found.items()} == inputs


def test_events_of_no_time_are_refused_however_short_the_call() -> None:
    found = samples([[1_000] * 9], [0.0] * 40, [20_000])
    assert found.predicted_ms == 0.0
    assert found.claim is not None and not found.claim.accepted
    assert found.summary().median_ms == pytest.approx(0.001)


def test_one_noisy_chain_moves_nothing() -> None:
    quiet, noisy = [100_000] * 9, [100_000] * 8 + [9_000_000]
    assert samples([noisy, quiet], [], [1_000]).certified_ms == pytest.approx(0.1)


def test_our_own_worker_counts_with_what_leaves_the_candidate_least() -> None:
    found = samples([[100_000]], [], [30_000])
    less = Trusted((Chain(elapsed_ns=[15_000]),), ((0.010,),))
    both = dataclasses.replace(found, trusted=[*found.trusted, less])
    assert both.beside_ms == pytest.approx(0.005)


@pytest.mark.parametrize(
    "value", [None, "fast", [1.0] * 3, [1.0, float("nan")], [True, 1.0], [1.0, -1.0], [[], 1.0]]
)
def test_events_that_are_no_times_are_tampering(value: object) -> None:
    with pytest.raises(SubmissionFailed) as caught:
        believable(value, 2)
    assert caught.value.result == "tampered"


def test_events_that_are_times_are_taken() -> None:
    assert believable([1, 2.5], 2) == [1.0, 2.5]
