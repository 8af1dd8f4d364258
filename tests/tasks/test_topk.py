"""topk: the reference, the cases, and the shipped submissions, through Triton's interpreter."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.pipeline import RefereeGrader
from tasks import loader
from tasks.case import Case
from tasks.formula import evaluate
from tasks.spec import Task
from tasks.tensors import TensorReference
from tensor_candidates import (
    first_failure,
    mutant,
    quick_plan,
    shipped_module,
    tensor_reference,
)


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("topk")


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    return tensor_reference(task)


@pytest.fixture(scope="module")
def plan(task: Task) -> list[Case]:
    return quick_plan(task)


def short(plan: list[Case]) -> list[Case]:
    """Cases of short rows: a slow kernel takes long in the interpreter."""
    return [case for case in plan if case.calls[0]["x"].size * case.expected[0]["0"].size < 40_000]


def by_sorting(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Python's sort of (-value, index)."""
    order = [sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in x.tolist()]
    indices = np.array(order, np.int64).reshape(len(x), k)
    return np.take_along_axis(x, indices, 1), indices


def in_torch(select) -> SimpleNamespace:
    """A submission of which only the selection is of interest."""

    class Model(torch.nn.Module):
        def __init__(self, batch: int, n: int, k: int) -> None:
            super().__init__()
            self.k = k
            self.register_buffer("_dummy", torch.zeros(1))

        def forward(self, x):
            return select(x, self.k)

    return SimpleNamespace(Model=Model)


def test_the_reference_agrees_with_pythons_sort(reference: TensorReference) -> None:
    rng = np.random.default_rng(2)
    for k in (1, 7, 97):
        for drawn in (rng.standard_normal((3, 97)), rng.integers(0, 4, (3, 97)), np.zeros((2, 97))):
            x = drawn.astype(np.float32)
            (got,) = reference.reference({"init": [len(x), 97, k]}, [{"x": x}])
            values, indices = by_sorting(x, k)
            np.testing.assert_array_equal(got["0"], values)
            np.testing.assert_array_equal(got["1"], indices)


def test_the_public_module_gives_what_the_reference_gives(reference: TensorReference) -> None:
    module = reference.module
    model = module.Model(*module.get_init_inputs())
    assert {name: tuple(v.shape) for name, v in model.state_dict().items()} == {"_dummy": (1,)}
    (x,) = module.get_inputs()
    values, indices = model(x)
    (wanted,) = module.reference({"init": module.get_init_inputs()}, [{"x": x}])
    assert torch.equal(values, wanted["0"])
    assert torch.equal(x.gather(1, indices), wanted["0"])


def test_formulas_are_those_of_the_public_deck(task: Task) -> None:
    for shape in task.shapes:
        batch, n, k = (shape.dims[name] for name in ("batch", "n", "k"))
        assert evaluate(task.work.flops, shape.dims) == 4 * batch * n
        assert evaluate(task.work.bytes, shape.dims) == 4 * batch * n + 12 * batch * k
        assert evaluate(task.work.floor_bytes, shape.dims) <= 4 * batch * n


@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_oracle_and_naive_are_right(task: Task, plan: list[Case], kind: str) -> None:
    cases = plan if kind == "oracle" else short(plan)
    assert len(cases) > len(plan) // 3
    assert first_failure(task, shipped_module(task, kind), cases) is None


@pytest.mark.parametrize(
    ("batch", "n", "k"),
    [(1, 9000, 128), (2, 12_000, 16), (1, 3000, 1500), (1, 20_000, 300), (2, 8193, 1)],
)
def test_the_oracle_is_right_where_its_launch_differs(
    task: Task, reference: TensorReference, batch: int, n: int, k: int
) -> None:
    """A second selection; chunks that do not fill a row; k beyond what a row's lanes can bound."""
    made = reference.make_inputs({"batch": batch, "n": n, "k": k}, 3)
    expected = reference.reference(made["params"], made["calls"])
    params, calls = made["params"], made["calls"] * 3
    case = Case("sized", "nominal", "3", params, calls, [*expected] * 3)
    assert first_failure(task, shipped_module(task, "oracle"), [case]) is None


def test_wrong_loses_what_shares_a_lane(task: Task, plan: list[Case]) -> None:
    spread = [case for case in plan if case.name.startswith("spread")]
    assert first_failure(task, shipped_module(task, "wrong"), spread) is not None
    single = [case for case in short(plan) if case.expected[0]["0"].shape[1] == 1]
    assert first_failure(task, shipped_module(task, "wrong"), single) is None


MUTANTS = {
    "ties are dropped": ("mask = (sure | tied) & (slot < K)", "mask = sure & (slot < K)"),
    "a threshold too many": ("of_third >= K, third, lower", "of_third >= K - 1, third, lower"),
    "ascending values": ("tl.store(values + rank,", "tl.store(values + K - 1 - rank,"),
    "indices of the chunk": ("at = chunk * TILE + tl.arange", "at = tl.arange"),
    "the padding counts": ("key = tl.where(at < n, key, LOWEST)", "key = key"),
    "the last chunk left out": ("chunks = -(-n // tile)", "chunks = max(n // tile, 1)"),
    "merged before all have arrived": ("before == CHUNKS - 1", "before == CHUNKS - 2"),
    "the counter is not set back": ("        tl.store(arrived + row, 0)", "        pass"),
}


def test_mutants_of_the_oracle_fail(task: Task, reference: TensorReference, tmp_path: Path) -> None:
    """On three calls of one model: normal, negative, few levels; rows of three chunks."""
    made = reference.make_inputs({"batch": 2, "n": 2500, "k": 20}, 5)
    x = made["calls"][0]["x"]
    calls = [{"x": x}, {"x": -np.abs(x)}, {"x": x.round()}]
    expected = reference.reference(made["params"], calls)
    case = Case("mixed", "nominal", "5", made["params"], calls, expected)
    assert first_failure(task, shipped_module(task, "oracle"), [case]) is None
    for number, (what, change) in enumerate(MUTANTS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert first_failure(task, mutant(task, "oracle", change, folder), [case]), what


FAKES = {
    "zeros": lambda x, k: (x.new_zeros(len(x), k), torch.zeros(len(x), k, dtype=torch.int64)),
    "the first k": lambda x, k: (x[:, :k].clone(), torch.arange(k).repeat(len(x), 1)),
    "nine tenths of a row": lambda x, k: x[:, : max(k, int(0.9 * x.shape[1]))].topk(k),
    "half precision": lambda x, k: (x.half().topk(k).values.float(), x.half().topk(k).indices),
    "ascending": lambda x, k: tuple(part.flip(1) for part in x.topk(k)),
    "one index for all": lambda x, k: (x.topk(k).values, x.topk(k).indices[:, :1].repeat(1, k)),
    "values of bfloat16": lambda x, k: (x.topk(k).values.bfloat16().float(), x.topk(k).indices),
}


@pytest.mark.parametrize("what", FAKES)
def test_what_is_less_work_fails(task: Task, plan: list[Case], what: str) -> None:
    nominal = [case for case in plan if case.group == "nominal"]
    drawn = [case for case in plan if case.name.startswith("scale 1000")]
    assert first_failure(task, in_torch(FAKES[what]), [*nominal, *drawn]) is not None


def test_any_order_of_equal_scores_passes(task: Task, plan: list[Case]) -> None:
    def from_the_end(x, k):
        values, places = x.flip(1).sort(dim=1, descending=True, stable=True)
        return values[:, :k].contiguous(), x.shape[1] - 1 - places[:, :k]

    assert first_failure(task, in_torch(from_the_end), plan) is None


@pytest.mark.parametrize(("kind", "word"), [("oracle", "pass"), ("wrong", "wrong")])
def test_a_whole_grade_of_the_rehearsal(task: Task, kind: str, word: str) -> None:
    folder = task.folder / "submissions" / kind
    request = GradeRequest(task, folder, tier="quick", correctness_only=True, device="cpu")
    assert RefereeGrader().grade(request).result == word


def test_a_rehearsal_is_timed_at_the_small_sizes(task: Task) -> None:
    folder = task.folder / "submissions" / "naive"
    request = GradeRequest(task, folder, device="cpu")
    report = RefereeGrader().bench(request)
    assert report.passed, report.text
    assert set(report.median_ms) == {shape.name for shape in task.smoke}
    with candidate_of(request) as candidate:
        assert candidate.timed_shapes == task.smoke
        assert replace(candidate, device="GPU-1").timed_shapes == task.shapes
