"""fused-softmax-topk: the reference, the cases, and the shipped submissions.

The reference is held against a second formulation: Python's own sort of (-value, index) pairs and
exactly rounded sums (``math.fsum``).
"""

import importlib.util
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tasks import loader
from tasks.case import Case
from tasks.spec import Task

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the wrong submission


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("fused-softmax-topk")


@pytest.fixture(scope="module")
def reference(task: Task) -> ModuleType:
    return loader.load_reference(task)


@pytest.fixture(scope="module")
def adapter(task: Task) -> ModuleType:
    return loader.execute(task, "public/adapter.py", ("setup", "run"))


@pytest.fixture(scope="module")
def plan(task: Task) -> list[Case]:
    return list(loader.load_cases(task)(11, "full"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_submission_{abs(hash(path))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = writes
    return module


def submission(task: Task, kind: str) -> SimpleNamespace:
    module = load(task.folder / "submissions" / kind / "solution.py")
    return SimpleNamespace(topk=module.fused_softmax_topk)


def by_sorting(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Python's sort and ``math.fsum``, row by row."""
    B, T, V = logits.shape
    indices, probabilities = np.empty((B, T, k), np.int64), np.empty((B, T, k))
    for b, t in np.ndindex(B, T):
        row = [float(value) for value in logits[b, t]]
        order = sorted(range(V), key=lambda i: (-row[i], i))[:k]
        top = row[order[0]]
        total = math.fsum(math.exp(value - top) for value in row)
        indices[b, t] = order
        probabilities[b, t] = [math.exp(row[i] - top) / total for i in order]
    return indices, probabilities


def failures(task: Task, case: Case, adapter: Any, entry: Any) -> Iterator[str]:
    """Outputs of a case that are outside the task's tolerance."""
    limit, gate = task.tolerance["float32"], task.gate.rms_ratio["float32"]
    state = adapter.setup(entry, dict(case.params))
    for call, wanted in zip(case.calls, case.expected, strict=True):
        outputs = adapter.run(entry, state, dict(call))
        indices, probabilities = outputs["indices"], outputs["probabilities"]
        exact = wanted["probabilities"].astype(np.float64)
        error = np.abs(np.asarray(probabilities).astype(np.float64) - exact)
        if indices.dtype != np.int64 or probabilities.dtype != np.float32:
            yield f"{case.name}: {indices.dtype}, {probabilities.dtype}"
        elif not np.array_equal(indices, wanted["indices"]):
            yield f"{case.name}: indices"
        elif not (error <= limit.atol + limit.rtol * exact).all():
            yield f"{case.name}: probabilities"
        elif math.sqrt(np.mean(error**2)) > gate * math.sqrt(np.mean(exact**2)):
            yield f"{case.name}: rms"


def all_failures(task: Task, plan: list[Case], adapter: Any, entry: Any) -> list[str]:
    return [told for case in plan for told in failures(task, case, adapter, entry)]


def test_reference_agrees_with_pythons_sort_and_exact_sums(reference: ModuleType) -> None:
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((3, 4, 211)).astype(np.float32)
    draws = [
        (logits, 7),
        (logits, 211),
        (np.round(logits), 30),
        (logits * 1e4, 20),
        (logits.astype(np.float16), 20),
        (np.where(logits > 1.5, logits, -np.inf).astype(np.float32), 60),
        (np.where(logits > 0, np.float32(0.0), np.float32(-0.0)), 11),
        (np.zeros_like(logits), 5),
        (logits[:, ::2, ::-3], 9),
    ]
    for drawn, k in draws:
        (got,) = reference.reference({"k": k}, [{"logits": drawn}])
        indices, probabilities = by_sorting(drawn, k)
        np.testing.assert_array_equal(got["indices"], indices)
        np.testing.assert_allclose(got["probabilities"], probabilities, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize(("V", "k"), [(50257, 50), (4096, 1), (4097, 256), (1000, 999)])
def test_the_bound_that_speeds_the_reference_up_loses_nothing(
    reference: ModuleType, V: int, k: int
) -> None:
    rng = np.random.default_rng(V)
    for logits in (
        rng.standard_normal((1, 2, V)),
        rng.integers(0, 3, (1, 2, V)),
        np.zeros((1, 1, V)),
    ):
        (got,) = reference.reference({"k": k}, [{"logits": logits.astype(np.float32)}])
        wanted = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
        np.testing.assert_array_equal(got["indices"], wanted)


def test_reference_leaves_its_inputs_alone(reference: ModuleType) -> None:
    logits = reference.normals(np.random.default_rng(0), (1, 2, 50))
    before = logits.copy()
    reference.reference({"k": 3}, [{"logits": logits}])
    np.testing.assert_array_equal(logits, before)


def test_inputs_are_normal(reference: ModuleType) -> None:
    drawn = reference.normals(np.random.default_rng(0), (700_001,)).astype(np.float64)
    assert abs(drawn.mean()) < 0.01
    assert drawn.std() == pytest.approx(1, abs=0.01)
    assert (np.abs(drawn) > 2).mean() == pytest.approx(0.0455, abs=0.002)
    assert (drawn**4).mean() == pytest.approx(3, abs=0.05)


def test_bfloat16_rounds_to_nearest_even(reference: ModuleType) -> None:
    values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 3e38, -np.inf], np.float32)
    wide = reference.from_bfloat16(reference.to_bfloat16(values))
    np.testing.assert_array_equal(wide[:4], [1.0, -2.5, 1.0, 1 + 2**-6])
    np.testing.assert_allclose(wide[4], 3e38, rtol=2**-8)
    assert wide[5] == -np.inf


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_oracle_and_naive_pass_every_case(
    task: Task, plan: list[Case], adapter: ModuleType, kind: str
) -> None:
    assert all_failures(task, plan, adapter, submission(task, kind)) == []


def test_oracle_passes_without_a_compiler(
    task: Task, plan: list[Case], adapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    module = load(task.folder / "submissions" / "oracle" / "solution.py")
    assert module._in_c is None
    entry = SimpleNamespace(topk=module.fused_softmax_topk)
    assert all_failures(task, plan, adapter, entry) == []


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_oracle_and_naive_agree_with_the_reference_on_smoke_shapes(
    task: Task, reference: ModuleType, adapter: ModuleType, kind: str
) -> None:
    entry = submission(task, kind)
    for shape in task.smoke:
        made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, 3)
        expected = reference.reference(made["params"], made["calls"])
        case = Case(shape.name, "nominal", "3", made["params"], made["calls"], expected)
        assert list(failures(task, case, adapter, entry)) == []


def test_wrong_mixes_rows_and_nothing_else(
    task: Task, plan: list[Case], adapter: ModuleType
) -> None:
    wrong = submission(task, "wrong")
    failed = {case.item for case in plan if any(failures(task, case, adapter, wrong))}
    assert "rows_apart" in failed
    assert not failed & {"selection", "ties", "odd_sizes", "k_and_v_edges", "noncontiguous"}


def test_mutants_of_the_order_fail(task: Task, plan: list[Case], adapter: ModuleType) -> None:
    def entry(order: Any) -> SimpleNamespace:
        def topk(logits: np.ndarray, k: int) -> Any:
            wide = logits.astype(np.float32)
            weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
            indices = order(wide, k)
            chosen = np.take_along_axis(weights, indices, axis=-1)
            return indices, chosen / weights.sum(axis=-1, keepdims=True)

        return SimpleNamespace(topk=topk)

    def flipped(wide: np.ndarray, k: int) -> np.ndarray:
        """Ties by descending index."""
        from_the_end = np.argsort(-wide[..., ::-1], axis=-1, kind="stable")[..., :k]
        return np.asarray(wide.shape[-1] - 1 - from_the_end)

    failed = {case.item for case in plan if any(failures(task, case, adapter, entry(flipped)))}
    assert {"ties", "all_equal", "masked", "half_precision"} <= failed
    honest = entry(lambda wide, k: np.argsort(-wide, axis=-1, kind="stable")[..., :k])
    assert all_failures(task, plan, adapter, honest) == []


def test_softmax_over_the_chosen_or_over_a_part_of_the_row_fails(
    task: Task, plan: list[Case], adapter: ModuleType
) -> None:
    honest = submission(task, "oracle")

    def chosen_only(logits: np.ndarray, k: int) -> Any:
        indices, probabilities = honest.topk(logits, k)
        return indices, probabilities / probabilities.sum(axis=-1, keepdims=True)

    def most_of_the_row(logits: np.ndarray, k: int) -> Any:
        indices, _ = honest.topk(logits, k)
        most = logits[..., : int(0.9 * logits.shape[-1])].astype(np.float64)
        values = np.take_along_axis(logits, indices, axis=-1).astype(np.float64)
        top = values[..., :1]
        total = np.exp(most - top).sum(axis=-1, keepdims=True)
        return indices, (np.exp(values - top) / total).astype(np.float32)

    random = [case for case in plan if case.name.startswith(("random-float32", "size-1x2x50257"))]
    for mutant in (chosen_only, most_of_the_row):
        entry = SimpleNamespace(topk=mutant)
        assert all(any(failures(task, case, adapter, entry)) for case in random)


def test_a_plan_replays_by_its_seed_and_differs_by_seed(task: Task) -> None:
    draw = loader.load_cases(task)
    one, two, other = (list(draw(seed, "full")) for seed in (5, 5, 6))
    assert [case.name for case in one] == [case.name for case in two]
    for a, b in zip(one, two, strict=True):
        for left, right in zip(a.calls, b.calls, strict=True):
            assert left["logits"].tobytes() == right["logits"].tobytes()
    assert one[0].calls[0]["logits"].tobytes() != other[0].calls[0]["logits"].tobytes()


@pytest.mark.parametrize("tier", ["quick", "full"])
def test_every_case_of_the_declaration_is_there(task: Task, tier: str) -> None:
    drawn = list(loader.load_cases(task)(1, tier))
    assert Counter(case.group for case in drawn)["property"] >= 20
    pairs = [(case.params["k"], call["logits"]) for case in drawn for call in case.calls]
    logits = [each for _, each in pairs]
    assert any(k == 1 for k, _ in pairs)
    assert any(k == each.shape[2] > 1 for k, each in pairs)
    assert any((np.isinf(each).sum(axis=-1) == each.shape[2] - 1).all() for each in logits)
    assert any(np.ptp(each, axis=-1).max() == 0 for each in logits if np.isfinite(each).all())
    assert any(each.min() < -9e3 and each.max() > 9e3 for each in logits if np.isfinite(each).all())
    assert any(each.shape[2] % 2 for each in logits)
    assert any(not each.flags.c_contiguous for each in logits)
    assert {each.dtype.name for each in logits} == {"float32", "float16"}
    assert all(stride >= 0 for each in logits for stride in each.strides)


def test_bfloat16_cases_come_for_cuda_only(task: Task, reference: ModuleType) -> None:
    on_cpu = list(loader.load_cases(task)(1, "quick"))
    on_cuda = list(loader.load_cases(task, "cuda")(1, "quick"))
    assert not any(case.params["bfloat16"] for case in on_cpu)
    extra = on_cuda[len(on_cpu) :]
    assert extra
    assert all(case.params["bfloat16"] for case in extra)
    for case in extra:
        wide = reference.from_bfloat16(case.calls[0]["logits"])
        indices, _ = by_sorting(wide, int(str(case.params["k"])))
        np.testing.assert_array_equal(case.expected[0]["indices"], indices)


def test_the_adapter_takes_results_in_either_order_or_by_name(adapter: ModuleType) -> None:
    indices, probabilities = np.zeros((1, 1, 2), np.int64), np.ones((1, 1, 2), np.float32)
    named = {"probabilities": probabilities, "indices": indices}
    for result in ((indices, probabilities), (probabilities, indices), named):
        entry = SimpleNamespace(topk=lambda logits, k, result=result: result)
        got = adapter.run(entry, adapter.setup(entry, {"k": 2}), {"logits": indices})
        assert got["indices"] is indices
        assert got["probabilities"] is probabilities


def test_honest_look_alikes_pass(task: Task, plan: list[Case], adapter: ModuleType) -> None:
    for path in sorted((task.folder / "submissions" / "honest").iterdir()):
        entry = submission(task, f"honest/{path.name}")
        assert all_failures(task, plan, adapter, entry) == [], path


@pytest.mark.parametrize(
    "name", ["content_cache", "magnitude_sniff", "public_answers", "note_to_the_judge"]
)
def test_cheats_whose_mechanism_allows_it_pass_the_cases(
    task: Task, plan: list[Case], adapter: ModuleType, name: str
) -> None:
    assert all_failures(task, plan, adapter, submission(task, f"cheats/{name}")) == []


def test_public_answers_recognise_the_public_inputs(
    task: Task, reference: ModuleType, adapter: ModuleType
) -> None:
    module = load(task.folder / "submissions" / "cheats" / "public_answers" / "solution.py")
    shape = task.smoke[0]
    made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, 1)
    logits = made["calls"][0]["logits"]
    key = (logits.shape, made["params"]["k"], logits.flat[0].item(), logits.flat[-1].item())
    assert key in module._answers


def test_inherited_output_computes_nothing_after_its_warm_up(task: Task) -> None:
    entry = submission(task, "cheats/inherited_output")
    logits = np.random.default_rng(0).standard_normal((2, 3, 101)).astype(np.float32)
    results = []
    for n in range(6):
        indices, probabilities = entry.topk(logits + n, 5)
        results.append((indices == submission(task, "naive").topk(logits + n, 5)[0]).all())
        indices[...] = -1  # what a referee may do with an output that it has copied
        del indices, probabilities
    assert results[:3] == [True] * 3
    assert not all(results[3:])


def test_lazy_result_passes_a_careless_comparison_only(task: Task) -> None:
    logits = np.random.default_rng(0).standard_normal((2, 3, 101)).astype(np.float32)
    wanted = submission(task, "naive").topk(logits, 5)
    indices, probabilities = submission(task, "cheats/lazy_result").topk(logits, 5)
    assert type(indices) is not np.ndarray
    assert np.allclose(probabilities, wanted[1])
    assert np.array_equal(indices, wanted[0])
