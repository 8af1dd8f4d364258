"""fp8-gemm: the reference, the gate, and the shipped submissions.

The reference is held against sums of exact fractions of Python's. Kernels run in Triton's
interpreter.
"""

import math
from fractions import Fraction
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the task's tensors are torch's")
pytest.importorskip("triton", reason="the kernels are Triton's")

from candidates import shipped  # noqa: E402
from graders.roofline import work  # noqa: E402
from mutants import mutated  # noqa: E402
from products import Products  # noqa: E402
from tasks.loader import load_task  # noqa: E402
from transcripts.words import GradeResult  # noqa: E402

TASK = load_task("fp8-gemm")
PRODUCTS = Products(TASK)
REFERENCE = PRODUCTS.reference
ORACLE, NAIVE = shipped(TASK, "oracle"), shipped(TASK, "naive")


def nominal() -> list[Any]:
    return [case for case in PRODUCTS.plan() if case.group == "nominal"]


def named(*words: str) -> list[Any]:
    """A few cases of the plan."""
    found = [case for case in PRODUCTS.plan() if case.name.startswith(words)]
    assert found
    return found


def test_the_reference_is_the_exact_sum() -> None:
    case = named("rows apart")[0]
    params, (x,) = PRODUCTS.typed(case)
    weight, scale = params["weights"]["weight"], params["weights"]["weight_scale"]
    y = case.expected[0]["y"]
    for m, n in ((0, 0), (3, 17), (71, 47), (40, 1)):
        pairs = zip(x[m].tolist(), weight[n].tolist(), strict=True)
        total = sum(Fraction(a) * Fraction(b) for a, b in pairs)
        assert float(total * Fraction(scale[n].item())) == pytest.approx(float(y[m, n]), rel=1e-7)


def test_the_public_module_is_the_reference_rounded() -> None:
    module, case = REFERENCE.module, nominal()[0]
    params, (x,) = PRODUCTS.typed(case)
    model = module.Model(*params["init"])
    assert list(model.state_dict()) == ["weight", "weight_scale"]
    model.load_state_dict(params["weights"], strict=True)
    assert PRODUCTS.is_right(case, [model(x)])
    assert module.get_init_inputs() == [*TASK.shapes[0].dims.values()]


def test_inputs_are_those_of_the_public_deck() -> None:
    module = REFERENCE.module
    shape = {"M": 64, "N": 96, "K": 256}
    x = module.make_inputs(shape, 3)["calls"][0]["x"].float()
    assert x.abs().max() == 4
    assert x.square().mean().sqrt() == pytest.approx(4 / 3**0.5, rel=0.03)
    weights = module.make_weights(shape, 3)
    assert (weights["weight"].float().abs().amax(dim=1) == 448).all()
    wide = weights["weight"].float() * weights["weight_scale"][:, None]
    assert wide.std() == pytest.approx(0.02, rel=0.05)


def exact(x: Any, weights: Any) -> Any:
    return (x.double() @ weights["weight"].double().T) * weights["weight_scale"].double()


def short_accumulators(x: Any, weights: Any) -> Any:
    """13 fraction bits below the largest term of each step of 32, cut off."""
    a, b = x.double(), weights["weight"].double()
    total = torch.zeros(len(a), len(b), dtype=torch.float64)
    for start in range(0, a.shape[1], 32):
        terms = a[:, None, start : start + 32] * b[None, :, start : start + 32]
        largest = torch.maximum(terms.abs().amax(-1), total.abs()).clamp(min=2.0**-100)
        unit = 2.0 ** (largest.log2().floor() - 13)
        total = ((terms / unit[..., None]).trunc().sum(-1) + (total / unit).trunc()) * unit
    return total * weights["weight_scale"].double()


def rms_ratio(got: Any, wanted: Any) -> float:
    return float((got.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


@pytest.mark.parametrize(("K", "most"), [(4096, 2.4e-3), (8192, 2.8e-3)])
def test_the_gate_leaves_float8_tensor_cores_twice_their_error(K: int, most: float) -> None:
    module, shape = REFERENCE.module, {"M": 16, "N": 24, "K": K}
    x, weights = module.make_inputs(shape, 1)["calls"][0]["x"], module.make_weights(shape, 1)
    wanted = exact(x, weights)
    assert rms_ratio(wanted.bfloat16(), wanted) < 1.9e-3
    assert rms_ratio(short_accumulators(x, weights).bfloat16(), wanted) < most
    assert TASK.gate.rms_ratio["bfloat16"] > 2 * most
    a_hundredth_less = exact(
        x[:, K // 100 :], {**weights, "weight": weights["weight"][:, K // 100 :]}
    )
    assert rms_ratio(a_hundredth_less, wanted) > 10 * TASK.gate.rms_ratio["bfloat16"]


def test_one_column_left_out_of_4127_shows() -> None:
    module, shape = REFERENCE.module, {"M": 16, "N": 24, "K": 4127}
    x, weights = module.make_inputs(shape, 1)["calls"][0]["x"], module.make_weights(shape, 1)
    less = exact(x[:, :-1], {**weights, "weight": weights["weight"][:, :-1]})
    assert rms_ratio(less, exact(x, weights)) > 1.5 * TASK.gate.rms_ratio["bfloat16"]


HONEST = {
    "exact, rounded once": exact,
    "sums in float32": lambda x, w: (x.float() @ w["weight"].float().T) * w["weight_scale"],
    "split, partial sums in float32": lambda x, w: (
        sum(x[:, n::3].float() @ w["weight"][:, n::3].float().T for n in range(3))
        * w["weight_scale"]
    ),
    "accumulators of 14 bits": short_accumulators,
}
SHORTCUTS = {
    "zeros": lambda x, w: torch.zeros(len(x), len(w["weight"])),
    "no scale": lambda x, w: x.float() @ w["weight"].float().T,
    "one scale for all": lambda x, w: (
        (x.float() @ w["weight"].float().T) * w["weight_scale"].mean()
    ),
    "a tenth of K left out": lambda x, w: exact(
        x[:, : int(0.9 * x.shape[1])],
        {**w, "weight": w["weight"][:, : int(0.9 * x.shape[1])]},
    ),
    "x in five bits": lambda x, w: exact(x.to(torch.float8_e5m2), w),
    "one row of x for all": lambda x, w: exact(x[:1].expand_as(x).float(), w),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_precision_passes_every_case(what: str) -> None:
    small = (case for case in PRODUCTS.plan() if math.prod(case.params["init"]) < 500_000)
    answers = ((case, PRODUCTS.by_formula(case, HONEST[what])) for case in small)
    assert [case.name for case, found in answers if not PRODUCTS.is_right(case, found)] == []


@pytest.mark.parametrize("what", SHORTCUTS)
def test_a_shortcut_fails_every_nominal_case(what: str) -> None:
    answers = ((case, PRODUCTS.by_formula(case, SHORTCUTS[what])) for case in nominal())
    assert not any(PRODUCTS.is_right(case, found) for case, found in answers)


MUTANTS = {
    "the ragged tail of K left out": ("steps = tl.cdiv(K, BK)", "steps = K // BK"),
    "the padding not zero": ("c < length), other=0)", "c < length), other=56)"),
    "the scale of the first columns": ("scale + n, mask", "scale + n % 64, mask"),
    "the first split alone": ("for other in range(SPLITS)", "for other in range(1)"),
    "the counter not put back": ("tl.store(arrived + column, 0)", "pass"),
    "stale weights": ("weight._version != self._version", "False"),
    "the first result of a size": (
        "        return y\n",
        "        kept = globals().setdefault('kept', {})\n"
        "        return kept.setdefault((y.shape, self.K), y)\n",
    ),
    "the right half of a tile left out": (
        "_store(y, row, column + BN // 2, right",
        "_store(y, row, column, left",
    ),
}


@pytest.mark.parametrize("what", [name for name in MUTANTS if name != "stale weights"])
def test_the_plan_catches_every_mutant_of_the_oracle(what: str) -> None:
    source = mutated(ORACLE, MUTANTS[what])
    few = named("again and again", "the tail alone, 20", "columns apart", "edge, 2x3", "m80")
    assert not PRODUCTS.passes(source, few)


def test_new_weights_in_the_same_model_are_followed() -> None:
    one, two = named("x times 64, 33x48x67", "weight times 0.01, 33x48x67")
    (first, (x,)), (second, _) = PRODUCTS.typed(one), PRODUCTS.typed(two)
    for source, follows in ((ORACLE, True), (mutated(ORACLE, MUTANTS["stale weights"]), False)):
        model = PRODUCTS.adapter.setup(PRODUCTS.offered(source), first)
        model(x)
        model.load_state_dict(second["weights"])
        error = rms_ratio(model(x), exact(x, second["weights"]))
        assert (error < TASK.gate.rms_ratio["bfloat16"]) is follows


def test_naive_passes_a_part_of_the_plan() -> None:
    assert PRODUCTS.failed(NAIVE, [*nominal(), *named("edge", "one of each row, wide")]) == []


def test_the_oracle_passes_a_whole_grade_of_correctness() -> None:
    grade = PRODUCTS.graded("oracle", correctness_only=True)
    assert grade.result is GradeResult.PASS, grade.message
    assert grade.language == "triton"


def test_wrong_is_wrong_where_k_is_ragged_only() -> None:
    wrong = shipped(TASK, "wrong")
    assert PRODUCTS.failed(wrong, named("m16_n64_k128", "smallest")) == []
    grade = PRODUCTS.graded("wrong", only="nominal")
    assert grade.result is GradeResult.WRONG
    assert {row.shape for row in grade.correctness if not row.passed} == {
        "m33_n40_k67",
        "m80_n72_k160",
    }


def test_work_is_that_of_the_public_deck() -> None:
    odd = work(TASK, TASK.shapes[1])
    assert odd.flops == 2 * 4096 * 4096 * 4127
    assert odd.bytes == 2 * 4096 * 4127 + 2 * 4096 * 4096
    for shape in TASK.shapes:
        done = work(TASK, shape)
        assert done.floor_flops < done.flops
        assert done.floor_bytes < done.bytes
