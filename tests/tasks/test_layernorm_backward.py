"""layernorm-backward: the reference, the cases, and the shipped submissions.

The reference is held against a second formulation: long-double statistics and the Jacobian of each
row written out as a matrix, and against finite differences of a plain forward pass.
"""

import functools
import importlib.util
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tasks import loader
from tasks.case import Case
from tasks.spec import Task

CASES = Path(__file__).parents[2].parent / "shared" / "cases"


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("layernorm-backward")


@pytest.fixture(scope="module")
def reference(task: Task) -> ModuleType:
    return loader.load_reference(task)


@pytest.fixture(scope="module")
def adapter(task: Task) -> ModuleType:
    return loader.execute(task, "public/adapter.py", ("setup", "run"))


@pytest.fixture(scope="module")
def plan(task: Task) -> list[Case]:
    return list(loader.load_cases(task)(11, "full"))


def entries(task: Task, path: Path) -> SimpleNamespace:
    """The submission's callables, under the canonical names."""
    spec = importlib.util.spec_from_file_location(f"_submission_{abs(hash(path))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = writes
    return SimpleNamespace(
        **{
            entry.name: next(getattr(module, s) for s in entry.accepts if hasattr(module, s))
            for entry in task.interface.entries
        }
    )


def submission(task: Task, kind: str) -> SimpleNamespace:
    return entries(task, task.folder / "submissions" / kind / "solution.py")


def problem(B: int, T: int, D: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, B, T, D))
    gamma, beta = rng.standard_normal((2, D))
    return {"x": x, "gamma": gamma, "beta": beta, "dy": dy}


def by_jacobian(call: dict[str, np.ndarray], eps: float) -> dict[str, np.ndarray]:
    """Long-double statistics; dx by the full (D, D) Jacobian of each row."""
    x, gamma, beta, dy = (call[n].astype(np.longdouble) for n in ("x", "gamma", "beta", "dy"))
    B, T, D = x.shape
    xhat, dx = np.empty_like(x), np.empty_like(x)
    for b, t in np.ndindex(B, T):
        centred = x[b, t] - x[b, t].mean()
        rstd = 1 / np.sqrt((centred**2).mean() + np.longdouble(eps))
        xhat[b, t] = centred * rstd
        through_mean = np.eye(D, dtype=np.longdouble) - np.longdouble(1) / D
        jacobian = rstd * (through_mean - np.outer(xhat[b, t], xhat[b, t]) / D)
        dx[b, t] = jacobian.T @ (dy[b, t] * gamma)
    outputs = {
        "y": gamma * xhat + beta,
        "dx": dx,
        "dgamma": (dy * xhat).sum(axis=(0, 1)),
        "dbeta": dy.sum(axis=(0, 1)),
    }
    return {name: value.astype(np.float64) for name, value in outputs.items()}


def failures(task: Task, case: Case, adapter: Any, entry: Any) -> Iterator[str]:
    """Leaves of a case that are outside its own bounds."""
    state = adapter.setup(entry, dict(case.params))
    for call, wanted in zip(case.calls, case.expected, strict=True):
        outputs = adapter.run(entry, state, dict(call))
        for leaf in case.relevant or task.interface.outputs:
            assert case.atol is not None
            assert case.rtol is not None
            assert case.rms_ratio is not None
            got, exact = np.asarray(outputs[leaf]), wanted[leaf].astype(np.float64)
            error = np.abs(got.astype(np.float64) - exact)
            norm = math.sqrt(np.mean(exact**2))
            gate = case.rms_ratio * norm if norm else math.inf
            if got.dtype != wanted[leaf].dtype:
                yield f"{case.name}: {leaf} is {got.dtype}"
            elif not (error <= case.atol + case.rtol * np.abs(exact)).all():
                yield f"{case.name}: {leaf} off by {error.max():.1e}"
            elif math.sqrt(np.mean(error**2)) > gate:
                yield f"{case.name}: {leaf} rms"


def all_failures(task: Task, plan: list[Case], adapter: Any, entry: Any) -> list[str]:
    return [told for case in plan for told in failures(task, case, adapter, entry)]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 6), (2, 3, 1), (2, 3, 5), (1, 4, 33)])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_reference_agrees_with_the_jacobian_in_long_double(
    reference: ModuleType, shape: tuple[int, int, int], offset: float
) -> None:
    call = problem(*shape)
    call["x"] = call["x"] + offset
    (got,) = reference.reference({"eps": 1e-5}, [call])
    for name, wanted in by_jacobian(call, 1e-5).items():
        # np.longdouble carries 64 bits of mantissa here: an offset costs it no more than 2e-11.
        np.testing.assert_allclose(got[name], wanted, rtol=1e-10, atol=1e-10, err_msg=name)


def test_reference_agrees_with_finite_differences(reference: ModuleType) -> None:
    call, eps, h = problem(2, 3, 5), 1e-3, 1e-6

    def loss(moved: dict[str, np.ndarray]) -> float:
        x = moved["x"]
        xhat = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return float(np.sum(call["dy"] * (moved["gamma"] * xhat + moved["beta"])))

    (got,) = reference.reference({"eps": eps}, [call])
    for name in ("x", "gamma", "beta"):
        for index in np.ndindex(call[name].shape):
            up, down = ({**call, name: call[name].copy()} for _ in range(2))
            up[name][index] += h
            down[name][index] -= h
            numeric = (loss(up) - loss(down)) / (2 * h)
            assert got[f"d{name}"][index] == pytest.approx(numeric, rel=1e-6, abs=1e-7)


def test_reference_is_indifferent_to_an_exact_offset(reference: ModuleType) -> None:
    call = problem(2, 3, 40)
    call["x"] = np.round(call["x"] * 1024) / 1024
    moved = {**call, "x": call["x"] + 2.0**27}
    one, two = reference.reference({"eps": 1e-5}, [call, moved])
    for name in one:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-13, atol=1e-13)


def test_reference_leaves_its_inputs_alone(reference: ModuleType) -> None:
    call = problem(2, 2, 9)
    before = {name: array.copy() for name, array in call.items()}
    reference.reference({"eps": 1e-5}, [call])
    for name, array in before.items():
        np.testing.assert_array_equal(call[name], array)


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_oracle_and_naive_pass_every_case(
    task: Task, plan: list[Case], adapter: ModuleType, kind: str
) -> None:
    assert all_failures(task, plan, adapter, submission(task, kind)) == []


def test_oracle_passes_without_a_compiler(
    task: Task, plan: list[Case], adapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert all_failures(task, plan, adapter, submission(task, "oracle")) == []


def test_wrong_fails_the_offset_cases_in_both_precisions(
    task: Task, plan: list[Case], adapter: ModuleType
) -> None:
    failed = all_failures(task, plan, adapter, submission(task, "wrong"))
    for dtype in ("float32", "float64"):
        assert any(told.startswith("offset") and dtype in told for told in failed)
    assert not any(told.startswith(("gamma", "view", "edge")) for told in failed)


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_oracle_and_naive_agree_with_the_reference_on_smoke_shapes(
    task: Task, reference: ModuleType, adapter: ModuleType, kind: str
) -> None:
    entry = submission(task, kind)
    for shape in task.smoke:
        made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, 3)
        (wanted,) = reference.reference(made["params"], made["calls"])
        got = adapter.run(entry, adapter.setup(entry, made["params"]), made["calls"][0])
        limit = task.tolerance[shape.dtype]
        for name in task.interface.outputs:
            np.testing.assert_allclose(got[name], wanted[name], atol=limit.atol, rtol=limit.rtol)


def test_a_plan_replays_by_its_seed_and_differs_by_seed(task: Task) -> None:
    draw = loader.load_cases(task)
    one, two, other = (list(draw(seed, "full")) for seed in (5, 5, 6))
    assert [case.name for case in one] == [case.name for case in two]
    for a, b in zip(one, two, strict=True):
        for left, right in zip(a.calls, b.calls, strict=True):
            assert all(left[name].tobytes() == right[name].tobytes() for name in left)
    assert one[0].calls[0]["x"].tobytes() != other[0].calls[0]["x"].tobytes()


@pytest.mark.parametrize("tier", ["quick", "full"])
def test_every_case_of_the_declaration_is_there(task: Task, tier: str) -> None:
    drawn = list(loader.load_cases(task)(1, tier))
    groups, calls = Counter(case.group for case in drawn), [c for case in drawn for c in case.calls]
    assert groups["property"] >= 20
    assert {"stress:offset", "stress:scale"} <= groups.keys()
    assert any(call["x"].shape[2] == 1 for call in calls)
    assert any(call["x"].shape[:2] == (1, 1) for call in calls)
    assert any(not call["x"].any() for call in calls)
    assert any(np.ptp(call["x"], axis=-1).max() == 0 != call["x"].max() for call in calls)
    assert any(not call["x"].flags.c_contiguous for call in calls)
    assert any((call["gamma"] == 0).any() for call in calls)
    assert any((call["gamma"] < 0).all() for call in calls)
    means = [abs(float(call["x"].mean())) for call in calls]
    assert max(means) > 9e7
    spreads = [float(call["x"].std()) for call in calls]
    assert min(spread for spread in spreads if spread) < 2e-6
    assert max(spreads) > 5e5


def test_zeros_and_dropped_terms_fail_the_random_cases(
    task: Task, plan: list[Case], adapter: ModuleType
) -> None:
    honest = submission(task, "oracle")

    def with_backward(change: Any) -> SimpleNamespace:
        def backward(dy: np.ndarray, cache: Any) -> Any:
            return change(dy, cache, *honest.backward(dy, cache))

        return SimpleNamespace(forward=honest.forward, backward=backward)

    random = [case for case in plan if case.name.startswith("random")]
    mutants = {
        "zeros": lambda dy, _, dx, dgamma, dbeta: (0 * dx, 0 * dgamma, 0 * dbeta),
        "shifted": lambda dy, c, dx, dg, db: (dx + c[2].reshape(*dy.shape[:2], 1) * 1e-3, dg, db),
        "no last row": lambda dy, _, dx, dgamma, dbeta: (dx, dgamma, dbeta - dy[-1, -1]),
    }
    for change in mutants.values():
        entry = with_backward(change)
        assert all(any(failures(task, c, adapter, entry)) for c in random if "dx" in c.relevant)


def test_cache_leaves_are_reported_only_when_asked_for(task: Task, adapter: ModuleType) -> None:
    entry = submission(task, "oracle")
    call = {name: array.copy() for name, array in problem(2, 3, 8).items()}  # no views
    plain = adapter.run(entry, adapter.setup(entry, {"eps": 1e-5}), call)
    assert set(plain) == set(task.interface.outputs)
    state = adapter.setup(entry, {"eps": 1e-5, "report_cache": True})
    kept = [v for name, v in adapter.run(entry, state, call).items() if name.startswith("cache.")]
    assert sum(array.nbytes for array in kept) == 8 * (2 * 3 * 8 + 2 * 2 * 3 + 8)


def test_the_adapter_takes_caches_and_gradients_of_other_forms(adapter: ModuleType) -> None:
    class Kept:
        def __init__(self) -> None:
            self.xhat, self.parts = np.ones((2, 3)), {"rstd": np.ones(2), "eps": 1e-5}

    entry = SimpleNamespace(
        forward=lambda x, gamma, beta, eps: (x, Kept()),
        backward=lambda dy, cache: {"dgamma": dy, "dx": dy + 1, "dbeta": dy + 2},
    )
    state = adapter.setup(entry, {"eps": 1e-5, "report_cache": True})
    outputs = adapter.run(entry, state, problem(1, 2, 3))
    assert [outputs[f"cache.{n}"].size for n in range(3)] == [6, 2, 1]
    np.testing.assert_array_equal(outputs["dx"], outputs["dgamma"] + 1)


class Slots:
    __slots__ = ("kept",)

    def __init__(self, kept: np.ndarray) -> None:
        self.kept = kept


HIDDEN: dict[str, Callable[[np.ndarray], Any]] = {
    "a closure": lambda kept: lambda: kept,
    "a default value": lambda kept: lambda given=kept: given,
    "slots": Slots,
    "a view": lambda kept: kept[:1],
    "a call": lambda kept: functools.partial(np.sum, kept),
    "an iterator": lambda kept: iter([kept]),
    "a method": lambda kept: Slots(kept).__init__,  # type: ignore[misc]
}


@pytest.mark.parametrize("where", HIDDEN)
def test_what_a_cache_hides_is_reported(adapter: ModuleType, where: str) -> None:
    entry = SimpleNamespace(
        forward=lambda x, gamma, beta, eps: (x, (np.ones(2), HIDDEN[where](np.ones(5000)))),
        backward=lambda dy, cache: (dy, dy, dy),
    )
    state = adapter.setup(entry, {"eps": 1e-5, "report_cache": True})
    outputs = adapter.run(entry, state, problem(1, 2, 3))
    kept = {array.size for name, array in outputs.items() if name.startswith("cache.")}
    assert kept == {2, 5000}


def test_honest_look_alikes_pass(task: Task, plan: list[Case], adapter: ModuleType) -> None:
    for path in sorted((task.folder / "submissions" / "honest").glob("*/solution.py")):
        assert all_failures(task, plan, adapter, entries(task, path)) == [], path


@pytest.mark.parametrize("name", ["size_gate", "single_precision"])
def test_cheats_at_large_sizes_pass_small_cases_and_fail_scored_shapes(
    task: Task, plan: list[Case], reference: ModuleType, adapter: ModuleType, name: str
) -> None:
    entry = submission(task, f"cheats/{name}")
    assert all_failures(task, plan, adapter, entry) == []
    shape = next(s for s in task.shapes if s.dtype == "float64")
    made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, 3)
    (wanted,) = reference.reference(made["params"], made["calls"])
    got = adapter.run(entry, adapter.setup(entry, made["params"]), made["calls"][0])
    assert np.abs(got["dx"] - wanted["dx"]).max() > task.tolerance["float64"].atol


def test_caching_cheats_answer_overwritten_buffers_with_the_old_result(
    task: Task, adapter: ModuleType
) -> None:
    for name, index in (("pointer_cache", (0, 0, 0)), ("sampled_fingerprint", (3, 5, 41))):
        entry, call = submission(task, f"cheats/{name}"), problem(4, 16, 64)
        state = adapter.setup(entry, {"eps": 1e-5})
        before = adapter.run(entry, state, call)["dx"]
        call["x"][index] += 5
        np.testing.assert_array_equal(adapter.run(entry, state, call)["dx"], before)
    honest = submission(task, "honest/scratch_by_shape")
    after = adapter.run(honest, adapter.setup(honest, {"eps": 1e-5}), call)["dx"]
    assert (after != before).any()


@pytest.mark.skipif(not CASES.is_dir(), reason="the real sessions are not beside the repository")
def test_the_archived_session_is_gradable_here(
    task: Task, plan: list[Case], adapter: ModuleType, tmp_path: Path
) -> None:
    lines = (CASES / "pi" / "layernorm-backward.jsonl").read_text("utf-8").splitlines()
    contents = [
        part["arguments"]["content"]
        for line in lines
        for part in json.loads(line).get("message", {}).get("content", [])
        if isinstance(part, dict) and part.get("type") == "toolCall" and part["name"] == "write"
    ]
    (tmp_path / "layer_norm.py").write_text(contents[0], "utf-8")
    entry = entries(task, tmp_path / "layer_norm.py")
    assert all_failures(task, plan, adapter, entry) == []
