"""kda-chunk: the reference against the recurrence, the gate, and the shipped submissions.

Shipped kernels run in workers, through Triton's interpreter. What the gate lets through is asked of
a chunked form in fp64 that can round every operand to bfloat16, or leave something out.
"""

# ruff: noqa: E402 - what needs torch is imported where torch is known to be there
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the task's interface is torch's")
pytest.importorskip("triton", reason="the submissions are Triton kernels")

from graders.base import GradeRequest
from graders.closeness import compare_all
from graders.pipeline import RefereeGrader
from tasks import loader
from tasks.case import Case
from tasks.formula import evaluate
from tasks.impostors import accepts
from tasks.properties import all_cases
from tasks.spec import Task
from tasks.tensors import TensorReference, as_array
from transcripts.words import GradeResult

torch.set_num_threads(1)  # small tensors: threads that wait for each other only cost

Tensors = dict[str, Any]
NAMES = ("q", "k", "v", "g", "beta")
CHUNK = 64


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("kda-chunk")


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    found = loader.load_reference(task)
    assert isinstance(found, TensorReference)
    return found


@pytest.fixture(scope="module")
def nominal(task: Task, reference: TensorReference) -> list[Case]:
    sizes = [shape.dims for shape in task.smoke] + [{**task.smoke[0].dims, "T": 1024, "H": 2}]
    return [drawn(reference, dims, seed) for seed, dims in enumerate(sizes)]


@pytest.fixture(scope="module")
def stress(task: Task) -> list[Case]:
    return list(loader.load_cases(task)(11, "quick"))


def drawn(reference: TensorReference, dims: dict[str, int], seed: int) -> Case:
    made = reference.make_inputs({**dims, "dtype": "bfloat16"}, seed)
    expected = reference.reference(made["params"], made["calls"])
    return Case(f"drawn {seed}", "nominal", str(seed), made["params"], made["calls"], expected)


def recurrent(q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
    """Token by token in fp64."""
    q, k, v, g, beta = (x.double() for x in (q, k, v, g, beta))
    S = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        S = g[:, t].exp()[..., None] * S
        error = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + beta[:, t, :, None, None] * k[:, t, :, :, None] * error[:, :, None, :]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * q.shape[3] ** -0.5, S))
    return torch.stack(outputs, dim=1)


def in_bfloat16(x: Any) -> Any:
    return x.to(torch.bfloat16).to(x.dtype)


def chunked(call: Tensors, what: str = "", rounded: Callable[[Any], Any] = in_bfloat16) -> Any:
    """A kernel's way in fp64, every operand ``rounded``; ``what`` names what is left out."""
    q, k, v, g, beta = (
        x.double().unflatten(1, (-1, CHUNK)).permute(0, 3, 1, 2, 4)
        for x in (*(call[name] for name in NAMES[:4]), call["beta"][..., None])
    )
    g = {
        "one decay for all channels": g.mean(-1, keepdim=True).expand_as(g),
        "one decay for a chunk": g.mean(-2, keepdim=True).expand_as(g),
        "no decay": 0 * g,
    }.get(what, g)
    beta = torch.ones_like(beta) if what == "no beta" else beta
    q = q if what == "no scale" else q * q.shape[-1] ** -0.5
    G = g.cumsum(-2) - (g if what == "the decay after the token" else 0)
    middle = G[..., CHUNK // 2 - 1, None, :]
    before, after = rounded(k * (middle - G).exp()).mT, (G - middle).exp()
    A = rounded(torch.tril(beta * (rounded(k * after) @ before), -1))
    P = rounded(torch.tril(rounded(q * after) @ before, -1 if what == "not itself" else 0))
    M = rounded(inverse(A, what) * beta.mT)
    w, u = rounded(M @ rounded(k * G.exp())), rounded(M @ v)
    queries, keys = rounded(q * G.exp()), rounded((G[..., -1:, :] - G).exp() * k)
    S = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=torch.float64)
    outputs, last = [], S
    for n in range(q.shape[2]):
        if what == "forgotten" or (what == "a tenth of the context" and n % 10 == 1):
            S = 0 * S
        held = rounded(S)
        fresh = rounded(u[:, :, n] - (0 if what == "no correction" else w[:, :, n] @ held))
        seen = rounded(last) if what == "a chunk late" else held
        outputs.append(queries[:, :, n] @ seen + P[:, :, n] @ fresh)
        last = S
        S = G[:, :, n, -1, :, None].exp() * S + keys[:, :, n].mT @ fresh
    return torch.stack(outputs, 2).permute(0, 2, 3, 1, 4).reshape(call["v"].shape)


def inverse(A: Any, what: str) -> Any:
    """(I + A)^-1, or the first terms of its series."""
    eye = torch.eye(CHUNK, dtype=A.dtype).expand_as(A)
    terms = {"no inverse": 1, "two terms": 2, "four terms": 4}.get(what)
    if terms is None:
        return torch.linalg.solve_triangular(eye + A, eye, upper=False, unitriangular=True)
    found = power = eye
    for _ in range(terms - 1):
        power = -power @ A
        found = found + power
    return found


def is_right(task: Task, reference: TensorReference, case: Case, compute: Any) -> bool:
    """Whether ``compute``, its results rounded to bfloat16, passes a case."""
    return all(
        close.passed
        for inputs, wanted in zip(case.calls, case.expected, strict=True)
        for close in compare_all(
            task,
            case,
            {"y": as_array(compute(reference.typed(inputs)).to(torch.bfloat16))},
            wanted,
            inputs,
        )
    )


def test_the_reference_agrees_with_the_recurrence(
    nominal: list[Case], stress: list[Case], reference: TensorReference
) -> None:
    for case in (*nominal[:3], *stress):
        exact = recurrent(**reference.typed(case.calls[0])).numpy()
        off = case.expected[0]["y"] - exact
        assert np.sqrt(np.mean(off**2)) < 2e-6 * np.sqrt(np.mean(exact**2)), case.name


def test_the_public_module_is_the_reference_rounded(task: Task) -> None:
    module: Any = loader.execute(task, "public/reference.py", ("get_inputs", "get_init_inputs"))
    module.B, module.T, module.H = 1, 128, 2
    model = module.Model(*module.get_init_inputs())
    inputs = module.get_inputs()
    (wanted,) = module.reference(
        {"init": module.get_init_inputs()}, [dict(zip(NAMES, inputs, strict=True))]
    )
    assert model.state_dict() == {}
    assert torch.equal(model(*inputs), wanted["y"].to(torch.bfloat16))
    assert [x.dtype for x in inputs] == [torch.bfloat16] * 3 + [torch.float32, torch.bfloat16]


def test_a_length_that_is_no_multiple_of_the_chunk_is_refused(reference: TensorReference) -> None:
    made = reference.module.make_inputs({"B": 1, "T": 65, "H": 1, "K": 8, "V": 8, "chunk": 64}, 0)
    with pytest.raises(ValueError, match="multiple of 64"):
        reference.module.reference(made["params"], made["calls"])


def test_inputs_are_those_of_the_public_deck(reference: TensorReference) -> None:
    dims = {"B": 1, "T": 512, "H": 2, "K": 128, "V": 128, "chunk": 64}
    (call,) = reference.module.make_inputs(dims, 5)["calls"]
    for name, mean in (("q", 0), ("k", 0), ("v", 0), ("g", -0.05)):
        assert call[name].double().mean().item() == pytest.approx(mean, abs=2e-3)
        assert call[name].double().std().item() == pytest.approx(0.1, abs=2e-3)
    assert call["beta"].shape == (1, 512, 2)
    assert call["beta"].double().logit().std().item() == pytest.approx(1, abs=0.1)


def test_formulas_are_those_of_the_public_deck(task: Task) -> None:
    for shape in task.shapes:
        B, T, H, K, V = (shape.dims[name] for name in "BTHKV")
        assert evaluate(task.work.flops, shape.dims) == 4 * B * T * H * (K * V + 64 * K + 64 * V)
        assert evaluate(task.work.bytes, shape.dims) == B * T * H * (8 * K + 4 * V + 2)
        assert (
            0 < evaluate(task.work.floor_flops, shape.dims) < evaluate(task.work.flops, shape.dims)
        )
        assert (
            0 < evaluate(task.work.floor_bytes, shape.dims) < evaluate(task.work.bytes, shape.dims)
        )


def test_bfloat16_operands_pass_every_case(
    task: Task, reference: TensorReference, nominal: list[Case], stress: list[Case]
) -> None:
    generated = list(all_cases(task, reference, 3, "quick"))
    assert len(generated) >= len(stress) + 20
    wrong = [
        case.name
        for case in (*nominal, *stress, *generated)
        if not is_right(task, reference, case, chunked)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "what",
    [
        "one decay for all channels",
        "one decay for a chunk",
        "no decay",
        "the decay after the token",
        "no beta",
        "no scale",
        "not itself",
        "no inverse",
        "two terms",
        "no correction",
        "forgotten",
        "a tenth of the context",
        "a chunk late",
    ],
)
def test_what_leaves_something_out_fails_on_ordinary_inputs(
    task: Task, reference: TensorReference, nominal: list[Case], what: str
) -> None:
    longest = nominal[-1]
    exactly = lambda call: chunked(call, what, lambda x: x)  # noqa: E731
    assert not is_right(task, reference, longest, exactly)


def test_four_terms_of_the_series_fail_where_keys_are_large_or_alike(
    task: Task, reference: TensorReference, nominal: list[Case], stress: list[Case]
) -> None:
    short = lambda call: chunked(call, "four terms")  # noqa: E731
    assert all(is_right(task, reference, case, short) for case in nominal)
    failed = {case.name for case in stress if not is_right(task, reference, case, short)}
    assert {"scale 2, 2x128x1", "scale 2, 1x192x2", "repeated keys", "close keys"} <= failed


def test_zeros_pass_the_public_tolerance_and_not_the_gate(task: Task, nominal: list[Case]) -> None:
    wanted = nominal[0].expected[0]["y"]
    limit = task.tolerance["bfloat16"]
    assert np.all(np.abs(wanted) <= limit.atol)
    assert not accepts(task, np.zeros_like(wanted), wanted, "bfloat16")


def test_every_case_is_within_the_domain_that_the_prompt_states(
    reference: TensorReference, stress: list[Case]
) -> None:
    for case in stress:
        call = reference.typed(case.calls[0])
        sums = call["g"].unflatten(1, (-1, CHUNK)).sum(2)
        assert sums.min() > -40, case.name
        assert sums.max() < 5, case.name
        assert call["beta"].min() >= 0, case.name
        assert call["beta"].max() <= 1, case.name
        if case.group == "stress:domain" and case.name not in ("long", "heads apart"):
            assert call["k"].double().norm(dim=-1).max() < 1.5, case.name


def graded(task: Task, kind: str, only: str = "") -> Any:
    folder = task.folder / "submissions" / kind
    return RefereeGrader().grade(
        GradeRequest(task, folder, tier="quick", correctness_only=True, device="cpu", only=only)
    )


def test_a_whole_grade_of_the_oracle_passes(task: Task) -> None:
    grade = graded(task, "oracle")
    assert grade.result == GradeResult.PASS, grade.message
    assert grade.language == "triton"
    assert all(check.passed is not False for check in grade.checks)


def test_naive_passes_a_nominal_case(task: Task) -> None:
    grade = graded(task, "naive", "nominal/b1_t128_h1")
    assert grade.result == GradeResult.PASS, grade.message


def test_wrong_passes_the_nominal_cases_and_fails_under_stress(task: Task) -> None:
    assert graded(task, "wrong", "nominal/b1_t128_h1").result == GradeResult.PASS
    grade = graded(task, "wrong", "stress:scale")
    assert grade.result == GradeResult.WRONG
    assert "scale 2" in grade.message
