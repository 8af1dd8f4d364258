"""w4a16-gemm: the reference, the gate, and the shipped submissions.

The reference is held against a loop over single bytes. Kernels run in Triton's interpreter.
"""

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

TASK = load_task("w4a16-gemm")
PRODUCTS = Products(TASK)
REFERENCE = PRODUCTS.reference
ORACLE, NAIVE = shipped(TASK, "oracle"), shipped(TASK, "naive")
GATE = TASK.gate.rms_ratio["bfloat16"]


def nominal() -> list[Any]:
    return [case for case in PRODUCTS.plan() if case.group == "nominal"]


def named(*words: str) -> list[Any]:
    """A few cases of the plan."""
    found = [case for case in PRODUCTS.plan() if case.name.startswith(words)]
    assert found
    return found


def test_the_reference_is_the_sum_over_single_nibbles() -> None:
    case = named("zeros apart, many")[0]
    params, (x,) = PRODUCTS.typed(case)
    weights = params["weights"]
    for m, n in ((0, 0), (3, 17), (65, 39), (40, 1)):
        total = 0.0
        for r, byte in enumerate(weights["w_q"][:, n].tolist()):
            for k, q in ((2 * r, byte % 16), (2 * r + 1, byte // 16)):
                zero, scale = (weights[name][k // 128, n].item() for name in ("zeros", "scales"))
                total += x[m, k].item() * (q - zero) * scale
        assert total == pytest.approx(float(case.expected[0]["y"][m, n]), rel=1e-5, abs=1e-6)


def test_the_public_module_is_the_reference_rounded() -> None:
    module, case = REFERENCE.module, nominal()[0]
    params, (x,) = PRODUCTS.typed(case)
    model = module.Model(*params["init"])
    assert list(model.state_dict()) == ["w_q", "scales", "zeros"]
    model.load_state_dict(params["weights"], strict=True)
    assert PRODUCTS.is_right(case, [model(x)])
    assert len(module.get_init_inputs()) == 4


def test_quantised_weights_are_close_to_what_they_were() -> None:
    module = REFERENCE.module
    drawn = torch.randn(512, 40, generator=torch.Generator().manual_seed(1)) * 0.02
    weights = module.quantised(drawn, 128)
    zeros = weights["zeros"].float()
    assert (zeros == zeros.round()).all()
    assert zeros.min() >= 0
    assert zeros.max() <= 15
    assert dequantised(weights).sub(drawn).abs().max() < 0.75 * weights["scales"].float().max()


def dequantised(weights: Any, dtype: Any = torch.float64) -> Any:
    q = REFERENCE.module.unpacked(weights["w_q"]).to(dtype)
    scales, zeros = (
        weights[name].to(dtype).repeat_interleave(128, dim=0) for name in ("scales", "zeros")
    )
    return (q - zeros) * scales


def exact(x: Any, weights: Any) -> Any:
    return x.double() @ dequantised(weights)


def in_halves(x: Any, weights: Any) -> Any:
    """Weights rounded to bfloat16, partial sums of four splits as well."""
    wide = dequantised(weights, torch.bfloat16).double()
    parts = [(x[:, n::4].double() @ wide[n::4]).bfloat16().double() for n in range(4)]
    return sum(parts)


def by_algebra(x: Any, weights: Any) -> Any:
    """Each group's sum of x · (128 + q), the zero taken off through the sum of x."""
    q = 128 + REFERENCE.module.unpacked(weights["w_q"]).float()
    y = torch.zeros(len(x), q.shape[1])
    for g in range(len(weights["scales"])):
        rows = slice(128 * g, 128 * g + 128)
        part, total = x[:, rows].float() @ q[rows], x[:, rows].float().sum(1, keepdim=True)
        y += (part - (128 + weights["zeros"][g].float()) * total) * weights["scales"][g].float()
    return y


def rms_ratio(got: Any, wanted: Any) -> float:
    return float((got.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


def test_the_gate_leaves_bfloat16_weights_twice_their_error() -> None:
    module, shape = REFERENCE.module, {"M": 16, "N": 96, "K": 4096}
    x, weights = module.make_inputs(shape, 1)["calls"][0]["x"], module.make_weights(shape, 1)
    wanted = exact(x, weights)
    rounded = x.double() @ dequantised(weights, torch.bfloat16).double()
    assert rms_ratio(wanted.bfloat16(), wanted) < 1.9e-3
    assert rms_ratio(rounded.bfloat16(), wanted) < 2.6e-3
    assert rms_ratio(in_halves(x, weights).bfloat16(), wanted) < 3e-3
    assert GATE >= 2 * 3e-3
    in_float8 = dequantised(weights).mul(1000).to(torch.float8_e4m3fn).double() / 1000
    assert rms_ratio(x.double() @ in_float8, wanted) > 3 * GATE


def without_the_last(x: Any, weights: Any, rows: int) -> Any:
    wide = dequantised(weights)
    return x[:, :-rows].double() @ wide[:-rows]


HONEST = {
    "exact, rounded once": exact,
    "weights in bfloat16": lambda x, w: x.float() @ dequantised(w, torch.bfloat16).float(),
    "splits in bfloat16": in_halves,
    "zeros by algebra": by_algebra,
}
SHORTCUTS = {
    "zeros": lambda x, w: torch.zeros(len(x), w["w_q"].shape[1]),
    "all zeros 8": lambda x, w: exact(x, {**w, "zeros": torch.full_like(w["zeros"], 8)}),
    "the first group's scale": lambda x, w: exact(
        x, {**w, "scales": w["scales"][:1].expand_as(w["scales"])}
    ),
    "nibbles exchanged": lambda x, w: exact(x, {**w, "w_q": (w["w_q"] >> 4) | (w["w_q"] << 4)}),
    "a tenth of K left out": lambda x, w: without_the_last(x, w, x.shape[1] // 10),
    "the last two rows left out": lambda x, w: without_the_last(x, w, 2),
    "3-bit weights": lambda x, w: exact(x, {**w, "w_q": w["w_q"] & 0xEE}),
    "x in float8": lambda x, w: exact(x.to(torch.float8_e4m3fn), w),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_precision_passes_every_case(what: str) -> None:
    answers = ((case, PRODUCTS.by_formula(case, HONEST[what])) for case in PRODUCTS.plan())
    assert [case.name for case, found in answers if not PRODUCTS.is_right(case, found)] == []


@pytest.mark.parametrize("what", SHORTCUTS)
def test_a_shortcut_fails_every_nominal_case(what: str) -> None:
    answers = ((case, PRODUCTS.by_formula(case, SHORTCUTS[what])) for case in nominal())
    assert not any(PRODUCTS.is_right(case, found) for case, found in answers)


VERSION = ("source._version != self._version", "False")
MUTANTS = {
    "nibbles exchanged": (
        "torch.stack([source & 15, source >> 4]",
        "torch.stack([source >> 4, source & 15]",
    ),
    "the last group left out": ("groups = K // 128", "groups = K // 128 - 1"),
    "the zero of the next column": (
        "tl.load(zeros + g * N + n,",
        "tl.load(zeros + g * N + n // 2,",
    ),
    "the first group's scale": ("tl.load(scales + g * N + n,", "tl.load(scales + n,"),
    "the first split alone": ("for other in range(SPLITS)", "for other in range(1)"),
    "the counter not put back": ("tl.store(arrived + tile, 0)", "pass"),
    "the first result of a size": (
        "        return y\n",
        "        kept = globals().setdefault('kept', {})\n"
        "        return kept.setdefault((y.shape, self.K), y)\n",
    ),
    "columns of the first tile again": ("n = column * BN + tl.arange", "n = 0 * BN + tl.arange"),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_the_plan_catches_every_mutant_of_the_oracle(what: str) -> None:
    few = named("m1_n64", "again and again", "zeros apart, 1x", "edge, 129x8")
    assert not PRODUCTS.passes(mutated(ORACLE, MUTANTS[what]), few)


def test_new_weights_in_the_same_model_are_followed() -> None:
    one, two = named("any bytes")[0], named("m5_n72_k384")[0]
    (first, (x,)), (second, _) = PRODUCTS.typed(one), PRODUCTS.typed(two)
    for source, follows in ((ORACLE, True), (mutated(ORACLE, VERSION), False)):
        model = PRODUCTS.adapter.setup(PRODUCTS.offered(source), first)
        model(x)
        model.load_state_dict(second["weights"])
        assert (rms_ratio(model(x), exact(x, second["weights"])) < GATE) is follows


def test_naive_passes_a_part_of_the_plan() -> None:
    part = named(
        "edge, 1x8", "edge, 17x64", "one of each row, 60", "odd rows", "again and again, 3"
    )
    assert PRODUCTS.failed(NAIVE, [*nominal(), *part]) == []


def test_the_oracle_passes_a_whole_grade_of_correctness() -> None:
    grade = PRODUCTS.graded("oracle", correctness_only=True)
    assert grade.result is GradeResult.PASS, grade.message
    assert grade.language == "triton"


def test_wrong_is_wrong_at_every_size() -> None:
    grade = PRODUCTS.graded("wrong", only="nominal")
    assert grade.result is GradeResult.WRONG
    assert not any(row.passed for row in grade.correctness)


def test_work_is_that_of_the_public_deck() -> None:
    first = work(TASK, TASK.shapes[1])
    assert first.flops == 2 * 32 * 12288 * 4096
    assert first.bytes == 2 * 32 * 4096 + 12288 * 4096 / 2 + 2 * 2 * 32 * 12288 + 2 * 32 * 12288
    for shape in TASK.shapes:
        done = work(TASK, shape)
        assert done.floor_flops < done.flops
        assert done.floor_bytes < done.bytes
