"""glm-fused-moe: the reference against a loop over tokens, the gate, and the shipped submissions.

The oracle's kernels run here over a stand-in for a GPU (``cuda_on_cpu.h``); naive and wrong compile
theirs by g++ where there is none.
"""

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graders.auditor.matrix import matrix
from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.pipeline import RefereeGrader
from graders.roofline import work
from tasks import loader
from tasks.case import Case
from tasks.properties import all_cases
from tasks.spec import Task
from tasks.tensors import TensorReference, as_array
from transcripts.words import GradeResult, Strength

torch = pytest.importorskip("torch", reason="the task's interface is torch's")

HEADER = Path(__file__).parents[1] / "support" / "cuda_on_cpu.h"
Mixture = Callable[[Any, Any, Any, dict[str, Any]], Any]


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("glm-fused-moe")


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    found = loader.load_reference(task)
    assert isinstance(found, TensorReference)
    return found


@pytest.fixture(scope="module")
def nominal(task: Task, reference: TensorReference) -> list[Case]:
    cases = []
    for shape in task.smoke:
        made = reference.make_inputs({**shape.dims, "dtype": shape.dtype}, 4)
        expected = reference.reference(made["params"], made["calls"])
        cases.append(Case(shape.name, "nominal", "4", made["params"], made["calls"], expected))
    return cases


@pytest.fixture(scope="module")
def plan(task: Task, reference: TensorReference, nominal: list[Case]) -> list[Case]:
    """Nominal draws, the task's own cases, and generated ones."""
    return [*nominal, *all_cases(task, reference, 2024, "quick")]


def wrong_in(
    task: Task, reference: TensorReference, cases: list[Case], mixture: Mixture
) -> Iterator[str]:
    """The cases that an implementation gets wrong."""
    for case in cases:
        weights = reference.typed(case.params["weights"], task.interface.raw_weights)
        for call, wanted in zip(case.calls, case.expected, strict=True):
            given = reference.typed(call)
            y = mixture(given["x"], given["expert_ids"], given["expert_weights"], weights)
            found = compare_all(task, case, {"y": as_array(y)}, wanted, call)
            if not all(close.passed for close in found):
                yield case.name


def rounded(x: Any) -> Any:
    return x.bfloat16().float()


def by_tokens(what: str = "", between: Callable[[Any], Any] = rounded) -> Mixture:
    """Token by token, all of its experts at once; ``between`` is done to what a kernel would store.

    ``what`` says what is done wrong.
    """

    def mixture(x: Any, ids: Any, weights: Any, state: dict[str, Any]) -> Any:
        rows = []
        for token in range(len(x)):
            chosen, by = ids[token], weights[token].to(x.dtype).float()
            if what == "one choice left out":
                chosen, by = chosen[:-1], by[:-1]
            if what == "the expert after":
                chosen = (chosen + 1) % len(state["w1_routed"])
            if what == "weights in another order":
                by = by.flip(0)
            if what == "unweighted":
                by = torch.ones_like(by)
            w1 = torch.cat([state["w1_shared"], state["w1_routed"][chosen]]).float()
            w2 = torch.cat([state["w2_shared"], state["w2_routed"][chosen]]).float()
            by = torch.cat([torch.ones(len(state["w1_shared"])), by])
            if what == "no shared expert":
                by[0] = 0
            row = x[token].float()
            if what == "a tenth of the sum left out":
                row = row.clone()
                row[: len(row) // 10] = 0
            gate, up = between(w1 @ row).chunk(2, dim=1)
            if what == "gate and up exchanged":
                gate, up = up, gate
            active = gate if what == "no activation" else torch.nn.functional.silu(gate)
            results = between((w2 @ between(active * up)[..., None])[..., 0])
            rows.append(between(by[:, None] * results).sum(0))
        y = torch.stack(rows)
        return torch.zeros_like(x) if what == "zeros" else y.to(x.dtype)

    return mixture


def test_the_reference_agrees_with_a_loop_over_tokens_in_float64(
    task: Task, reference: TensorReference, nominal: list[Case]
) -> None:
    for case in nominal:
        state = reference.typed(case.params["weights"], task.interface.raw_weights)
        (call,) = map(reference.typed, case.calls)
        wide = {name: value.double() for name, value in state.items()}
        rows = []
        for x, ids, by in zip(
            call["x"].double(), call["expert_ids"], call["expert_weights"].double(), strict=True
        ):
            row = torch.zeros_like(x)
            routed = [(wide["w1_routed"][e], wide["w2_routed"][e]) for e in ids]
            shared = [*zip(wide["w1_shared"], wide["w2_shared"], strict=True)]
            shares = [*by, *[1.0] * len(shared)]
            for (w1, w2), share in zip([*routed, *shared], shares, strict=True):
                gate, up = (w1 @ x).chunk(2)
                row += share * (w2 @ (gate / (1 + (-gate).exp()) * up))
            rows.append(row)
        exact = torch.stack(rows)
        found = reference.typed(case.expected[0], {"y": "bfloat16"})["y"].double()
        assert (found - exact).abs().max() <= 2**-8 * exact.abs().max()
        assert (found - exact).square().mean() <= (2e-3) ** 2 * exact.square().mean()


def test_the_public_module_is_the_reference(
    task: Task, reference: TensorReference, nominal: list[Case]
) -> None:
    module, case = reference.module, nominal[2]
    state = reference.typed(case.params["weights"], task.interface.raw_weights)
    model = module.Model(*case.params["init"])
    assert list(model.state_dict()) == ["w1_routed", "w2_routed", "w1_shared", "w2_shared"]
    model.load_state_dict(state, strict=True)

    def public(x: Any, ids: Any, weights: Any, _: Any) -> Any:
        return model(x, ids, weights).detach()

    assert list(wrong_in(task, reference, [case], public)) == []
    assert module.get_init_inputs() == [4096, 256, 8, 1, 4096, 2048]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(rounded, id="bfloat16 wherever it is stored"),
        pytest.param(lambda x: x, id="float32"),
    ],
)
def test_honest_precision_passes_every_case(
    task: Task, reference: TensorReference, plan: list[Case], between: Callable[[Any], Any]
) -> None:
    assert len(plan) >= 30
    assert list(wrong_in(task, reference, plan, by_tokens(between=between))) == []


@pytest.mark.parametrize(
    "what",
    [
        "zeros",
        "no shared expert",
        "one choice left out",
        "the expert after",
        "weights in another order",
        "unweighted",
        "no activation",
        "gate and up exchanged",
        "a tenth of the sum left out",
    ],
)
def test_what_is_left_out_or_mistaken_fails_on_ordinary_inputs(
    task: Task, reference: TensorReference, nominal: list[Case], what: str
) -> None:
    assert list(wrong_in(task, reference, nominal, by_tokens(what)))


def test_eight_bits_are_not_enough(
    task: Task, reference: TensorReference, nominal: list[Case]
) -> None:
    def narrow(x: Any, ids: Any, weights: Any, state: dict[str, Any]) -> Any:
        eight = {
            name: (value.float() * 256).to(torch.float8_e4m3fn) for name, value in state.items()
        }
        state = {name: (value.float() / 256).bfloat16() for name, value in eight.items()}
        return by_tokens()(x, ids, weights, state)

    assert set(wrong_in(task, reference, nominal, narrow)) == {case.name for case in nominal}


def test_every_other_routing_of_the_plan_is_another(plan: list[Case]) -> None:
    names = {case.name.partition(",")[0] for case in plan if case.group == "stress:routing"}
    assert len(names) == 6
    groups = {case.group for case in plan}
    assert groups >= {"nominal", "stress:scale", "stress:routing"}


@pytest.fixture(scope="module")
def oracle(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Mixture]:
    """The oracle's kernels with tiles of so many rows."""
    library = tmp_path_factory.mktemp("moe") / "moe.so"
    source = task.folder / "submissions" / "oracle" / "moe.cu"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-include", str(HEADER), "-x", "c++"]
    command = ["g++", *flags, str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=300)
    launch = ctypes.CDLL(str(library)).launch
    launch.argtypes = [*[ctypes.c_long] * 11, *[ctypes.c_int] * 7, ctypes.c_long]

    def tiled(tall: int) -> Mixture:
        def mixture(x: Any, ids: Any, weights: Any, state: dict[str, Any]) -> Any:
            (T, top_k), (E, H, I) = ids.shape, state["w2_routed"].shape  # noqa: E741
            shared = len(state["w1_shared"])
            visits = T * (top_k + shared)
            plan = torch.full((visits + 2 * (E + shared + 1),), -1, dtype=torch.int32)
            hidden, results = (x.new_full((visits, n), torch.nan) for n in (I, H))
            y = torch.full_like(x, torch.nan)
            names = ("w1_routed", "w2_routed", "w1_shared", "w2_shared")
            tensors = (x, ids, weights, *(state[name] for name in names), plan, hidden, results, y)
            places = (tensor.data_ptr() for tensor in tensors)
            assert launch(*places, T, E, top_k, shared, H, I, tall, 0) == 0
            return y

        return mixture

    return tiled


@pytest.mark.parametrize("tall", [32, 64, 128])
def test_the_oracles_kernels_are_right(
    task: Task,
    reference: TensorReference,
    nominal: list[Case],
    plan: list[Case],
    oracle: Callable[[int], Mixture],
    tall: int,
) -> None:
    full = {"T": 40, "E": 8, "top_k": 8, "n_shared": 1, "H": 256, "I": 128, "dtype": "bfloat16"}
    made = reference.make_inputs(full, 6)  # 40 visits an expert, more than a tile of 32
    expected = reference.reference(made["params"], made["calls"])
    crowded = Case("crowded", "nominal", "6", made["params"], made["calls"], expected)
    chosen = [case for case in plan if case.name.startswith("experts in turn, 3x")]
    assert len(chosen) == 1
    cases = [nominal[2], crowded, *chosen] if tall == 32 else [crowded]
    assert list(wrong_in(task, reference, cases, oracle(tall))) == []


def graded(task: Task, kind: str, only: str = "") -> Any:
    folder = task.folder / "submissions" / kind
    return RefereeGrader().grade(
        GradeRequest(task, folder, tier="quick", correctness_only=True, device="cpu", only=only)
    )


def test_a_whole_grade_of_naive_passes(task: Task) -> None:
    grade = graded(task, "naive")
    assert grade.result == GradeResult.PASS, grade.message
    assert grade.language == "cuda_raw"
    assert [check.check for check in grade.checks if check.passed is False] == []


def test_wrong_is_right_until_weights_are_no_softmax(task: Task) -> None:
    assert graded(task, "wrong", "nominal").result is GradeResult.PASS
    grade = graded(task, "wrong", "stress:routing")
    assert grade.result is GradeResult.WRONG
    assert "weights that are no softmax" in grade.message


def test_the_source_of_each_cheat_shows_its_mechanism_and_honest_ones_show_none(
    task: Task,
) -> None:
    for line in matrix(task):
        found = {f.mechanism for f in line.audit.findings if f.strength is not Strength.WEAK}
        assert found >= {line.case.mechanism} if line.case.mechanism else not found, line.case.kind


def test_work_is_that_of_every_visit(task: Task) -> None:
    first = work(task, task.shapes[0])
    assert first.flops == 4096 * 9 * (4 * 4096 * 2048 + 2 * 2048 * 4096)
    assert first.bytes == 4 * 4096 * 4096 + 257 * 3 * 2048 * 4096 * 2
    for shape in task.shapes:
        done = work(task, shape)
        assert done.floor_flops < done.flops
        assert done.floor_bytes < done.bytes
