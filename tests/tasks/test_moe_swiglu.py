"""moe-swiglu: the reference, the gate, and the shipped submissions.

The reference is held against a plain loop over tokens in float64. Kernels run in Triton's
interpreter.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from candidates import entries, shipped
from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.pipeline import RefereeGrader
from graders.roofline import work
from mutants import mutated
from tasks.case import Case
from tasks.loader import execute, load_reference, load_task
from tasks.properties import all_cases
from tasks.tensors import TensorReference, as_array
from transcripts.records import Grade
from transcripts.words import GradeResult

torch = pytest.importorskip("torch", reason="the task's tensors are torch's")
pytest.importorskip("triton", reason="the kernels are Triton's")

torch.set_num_threads(1)  # small products: threads that wait for each other only cost

TASK = load_task("moe-swiglu")
Function = Callable[..., Any]


@cache
def reference() -> TensorReference:
    found = load_reference(TASK)
    assert isinstance(found, TensorReference)
    return found


@cache
def quick_plan() -> list[Case]:
    """Nominal draws of the smoke shapes, the task's own cases, and generated ones."""
    nominal = []
    for n, shape in enumerate(TASK.smoke):
        made = reference().make_inputs({**shape.dims, "dtype": shape.dtype}, n)
        expected = reference().reference(made["params"], made["calls"])
        nominal.append(Case(shape.name, "nominal", str(n), made["params"], made["calls"], expected))
    return [*nominal, *all_cases(TASK, reference(), 2024, "quick")]


def typed(case: Case) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    weights = reference().typed(case.params["weights"], TASK.interface.raw_weights)
    calls = [reference().typed(call) for call in case.calls]
    yield {**case.params, "weights": weights}, calls


def is_right(case: Case, results: list[Any]) -> bool:
    """Whether results of all calls are, as the referee would say."""
    rows = zip(results, case.expected, case.calls, strict=True)
    return all(
        close.passed
        for result, wanted, inputs in rows
        for close in compare_all(TASK, case, {"y": as_array(result)}, wanted, inputs)
    )


def answers(case: Case, offered: Any) -> list[Any]:
    """What a submission gives in a case."""
    adapter = execute(TASK, "public/adapter.py", ("setup", "run"))
    ((params, calls),) = typed(case)
    model = adapter.setup(offered, params)
    return [adapter.run(offered, model, call) for call in calls]


def of_formula(case: Case, formula: Function) -> list[Any]:
    """What a function of (rows of x, gate matrix, up matrix) gives, expert by expert."""
    ((params, calls),) = typed(case)
    weights = params["weights"]
    found = []
    for call in calls:
        x, bounds = call["hidden_states"], call["expert_offsets"].tolist()
        y = x.new_empty(len(x), weights["W_gate"].shape[2])
        for e, (begin, end) in enumerate(itertools.pairwise(bounds)):
            y[begin:end] = formula(x[begin:end], weights["W_gate"][e], weights["W_up"][e])
        found.append(y)
    return found


def silu(x: Any) -> Any:
    return x / (1 + (-x).exp())


def sums(x: Any, w: Any) -> Any:
    return x.float() @ w.float()


def test_the_reference_agrees_with_a_loop_over_tokens() -> None:
    for case in few_cases()[:4]:
        ((params, calls),) = typed(case)
        gates, ups = (params["weights"][name].double() for name in ("W_gate", "W_up"))
        (call,), (wanted,) = calls, case.expected
        x, bounds = call["hidden_states"].double(), call["expert_offsets"].tolist()
        y = torch.zeros(len(x), gates.shape[2], dtype=torch.float64)
        for row in range(len(x)):
            expert = next(e for e in range(len(gates)) if bounds[e] <= row < bounds[e + 1])
            y[row] = silu(x[row] @ gates[expert]) * (x[row] @ ups[expert])
        exact = torch.from_numpy(wanted["y"]).view(torch.bfloat16).double()
        assert (exact - y).abs().max() <= 2**-8 * y.abs().max()
        assert (exact - y).square().mean() <= (2e-3) ** 2 * y.square().mean()


def test_the_model_of_the_public_interface_is_the_reference() -> None:
    module = reference().module
    case = quick_plan()[0]
    ((params, (call,)),) = typed(case)
    model = module.Model(*params["init"])
    model.load_state_dict(params["weights"], strict=True)
    y = model(call["hidden_states"], call["expert_offsets"])
    assert is_right(case, [y.detach()])
    assert list(model.state_dict()) == ["W_gate", "W_up"]
    assert module.get_init_inputs() == [*TASK.shapes[0].dims.values()]


def test_weights_and_hidden_states_share_no_stream() -> None:
    made = reference().make_inputs({**TASK.smoke[0].dims, "dtype": "bfloat16"}, 5)
    x = made["calls"][0]["hidden_states"].reshape(-1)[:4096]
    decoded = torch.from_numpy(x).view(torch.bfloat16).float()
    for matrix in made["params"]["weights"].values():
        other = torch.from_numpy(matrix).view(torch.bfloat16).float().reshape(-1)[:4096]
        assert abs(torch.corrcoef(torch.stack([decoded, other]))[0, 1]) < 0.1


def rounded(x: Any) -> Any:
    return x.bfloat16().float()


HONEST: dict[str, Function] = {
    "float32, rounded once": lambda x, g, u: silu(sums(x, g)) * sums(x, u),
    "bfloat16 at each stage": lambda x, g, u: (
        rounded(silu(rounded(sums(x, g)))) * rounded(sums(x, u))
    ),
    "sums in four parts": lambda x, g, u: (
        silu(sum(sums(x[:, n::4], g[n::4]) for n in range(4)))
        * sum(sums(x[:, n::4], u[n::4]) for n in range(4))
    ),
}
SHORTCUTS: dict[str, Function] = {
    "zeros": lambda x, g, u: torch.zeros(len(x), g.shape[1]),
    "no activation": lambda x, g, u: sums(x, g) * sums(x, u),
    "half of the gate for silu": lambda x, g, u: sums(x, g) / 2 * sums(x, u),
    "relu": lambda x, g, u: sums(x, g).relu() * sums(x, u),
    "gate and up exchanged": lambda x, g, u: sums(x, g) * silu(sums(x, u)),
    "the up product left out": lambda x, g, u: silu(sums(x, g)),
    "a tenth of the sum left out": lambda x, g, u: (
        silu(sums(x[:, len(g) // 10 :], g[len(g) // 10 :]))
        * sums(x[:, len(g) // 10 :], u[len(g) // 10 :])
    ),
    "8-bit hidden states": lambda x, g, u: (
        silu(sums(x.to(torch.float8_e4m3fn), g)) * sums(x.to(torch.float8_e4m3fn), u)
    ),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_precision_passes_every_case(what: str) -> None:
    assert [c.name for c in quick_plan() if not is_right(c, of_formula(c, HONEST[what]))] == []


@pytest.mark.parametrize("what", SHORTCUTS)
def test_a_shortcut_fails_every_nominal_case(what: str) -> None:
    nominal = [case for case in quick_plan() if case.group == "nominal"]
    assert not any(is_right(case, of_formula(case, SHORTCUTS[what])) for case in nominal)


def test_a_row_left_out_of_thousands_shows_at_eight_times_the_scale() -> None:
    scaled = [case for case in quick_plan() if case.group == "stress:routing"]
    assert scaled
    for case in scaled:
        (y,) = of_formula(case, HONEST["float32, rounded once"])
        y[len(y) // 2] = 0
        assert not is_right(case, [y])


@cache
def offered(source: str) -> SimpleNamespace:
    return entries(TASK, source)


def few_cases() -> list[Case]:
    """The smallest size, skewed routing, and a sequence of calls."""
    plan = quick_plan()
    small = min((c for c in plan if c.group == "nominal"), key=lambda c: c.expected[0]["y"].size)
    routed = [case for case in plan if case.group == "stress:routing"]
    repeated = [case for case in plan if len(case.calls) > 1]
    return [small, *routed[1:4], min(repeated, key=lambda c: c.expected[0]["y"].size)]


def test_naive_is_right_on_skewed_routing_and_in_sequences() -> None:
    module = offered(shipped(TASK, "naive"))
    assert [case.name for case in few_cases() if not is_right(case, answers(case, module))] == []


MUTANTS = {
    "the partial tile left out": ("(ends - begins + BLOCK_M - 1)", "(ends - begins)"),
    "the first expert's gate": ("w_gate.load([expert * H + k, ", "w_gate.load([k, "),
    "up read where gate is": ("b_up = w_up.load", "b_up = w_gate.load"),
    "the last block of the sum left out": ("in range(0, H, ", "in range(0, H - BLOCK_K, "),
    "a column tile left out": ("inside // size * BLOCK_N", "(inside // size | 1) * BLOCK_N"),
    "the first result of a shape": (
        "        return y\n",
        "        kept = self.__dict__.setdefault('kept', {})\n"
        "        return kept.setdefault(y.shape, y)\n",
    ),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_the_plan_catches_every_mutant_of_the_oracle(what: str) -> None:
    module = offered(mutated(shipped(TASK, "oracle"), MUTANTS[what]))
    with np.errstate(all="ignore"):
        assert not all(is_right(case, answers(case, module)) for case in few_cases()[::-1])


def graded(kind: str, **how: Any) -> Grade:
    folder = TASK.folder / "submissions" / kind
    return RefereeGrader().grade(GradeRequest(TASK, folder, tier="quick", **how))


def test_the_oracle_passes_a_whole_grade_of_correctness() -> None:
    grade = graded("oracle", correctness_only=True)
    assert grade.result is GradeResult.PASS, grade.message
    assert grade.language == "triton"


def test_wrong_is_right_on_even_routing_only() -> None:
    assert graded("wrong", only="nominal").result is GradeResult.PASS
    assert graded("wrong", only="stress:routing").result is GradeResult.WRONG


def test_work_is_that_of_two_products_over_all_visits() -> None:
    first = work(TASK, TASK.shapes[0])
    assert first.flops == 2 * 2 * (32768 * 8) * 4096 * 1536
    hidden, weights, out = 32768 * 8 * 4096, 2 * 128 * 4096 * 1536, 32768 * 8 * 1536
    assert first.bytes == 2 * (hidden + weights + out)
    for shape in TASK.shapes:
        done = work(TASK, shape)
        assert done.floor_flops < done.flops
        assert done.floor_bytes < done.bytes
