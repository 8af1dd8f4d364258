"""nsa: the reference against one query at a time, the gate, and the shipped submissions.

The oracle's kernels run here over a stand-in for a GPU (``cuda_on_cpu.h``); naive and wrong compile
their kernels by g++ where there is none. What the gate lets through is asked of a dense form that
can leave something out.
"""

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the task's interface is torch's")

from graders.auditor.matrix import matrix  # noqa: E402
from graders.base import GradeRequest  # noqa: E402
from graders.closeness import compare_all  # noqa: E402
from graders.pipeline import RefereeGrader  # noqa: E402
from tasks import loader  # noqa: E402
from tasks.case import Case  # noqa: E402
from tasks.formula import evaluate  # noqa: E402
from tasks.properties import generated  # noqa: E402
from tasks.spec import Task  # noqa: E402
from tasks.tensors import TensorReference, as_array  # noqa: E402
from transcripts.words import GradeResult, Strength  # noqa: E402

HEADER = Path(__file__).parents[1] / "support" / "cuda_on_cpu.h"
Attention = Callable[[Any, Any, Any], Any]


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("nsa")


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    found = loader.load_reference(task)
    assert isinstance(found, TensorReference)
    return found


@pytest.fixture(scope="module")
def nominal(task: Task, reference: TensorReference) -> list[Case]:
    return [_drawn(reference, shape.dims) for shape in task.smoke]


@pytest.fixture(scope="module")
def made(task: Task) -> list[Case]:
    return list(loader.load_cases(task)(11, "quick"))


def _drawn(reference: TensorReference, dims: dict[str, int]) -> Case:
    drawn = reference.make_inputs(dims, 4)
    expected = reference.reference(drawn["params"], drawn["calls"])
    return Case("drawn", "nominal", "4", drawn["params"], drawn["calls"], expected)


def wrong_in(
    task: Task, reference: TensorReference, cases: list[Case], attention: Attention
) -> Iterator[str]:
    """The cases that an implementation gets wrong."""
    for case in cases:
        for call, wanted in zip(case.calls, case.expected, strict=True):
            given = reference.typed(call)
            out = attention(given["q"], given["k"], given["v"])
            found = compare_all(task, case, {"y": as_array(out)}, wanted, call)
            if not all(close.passed for close in found):
                yield case.name


def one_query_at_a_time(q: Any, k: Any, v: Any) -> np.ndarray:
    """(S, D) of one head: each query's own list of keys, Python's sort, float64."""
    q, k, v = (x.double().numpy() for x in (q, k, v))
    out = np.empty_like(v)
    for t in range(len(q)):
        scores = [float(q[t] @ key) / len(q[t]) ** 0.5 for key in k[: t + 1]]
        means = [np.mean(scores[start : start + 64]) for start in range(0, t + 1, 64)]
        kept = sorted(range(len(means)), key=lambda block: (means[block], block))[-8:]
        seen = {s for block in kept for s in range(64 * block, 64 * block + 64)}
        keys = sorted(s for s in seen | set(range(t - 63, t + 1)) if 0 <= s <= t)
        weights = np.exp(np.array(scores)[keys] - max(scores))
        out[t] = weights @ v[keys] / weights.sum()
    return out


@pytest.mark.parametrize("S", [1, 64, 130, 700])
def test_the_reference_agrees_with_one_query_at_a_time(reference: TensorReference, S: int) -> None:
    """Small integers give exact sums, so equally important blocks are equal in both."""
    rng = np.random.default_rng(S)
    drawn = (rng.integers(-1, 2, (1, 2, S, 16)), rng.integers(-1, 2, (1, 2, S, 16)))
    q, k = (torch.from_numpy(x).bfloat16() for x in drawn)
    v = torch.from_numpy(rng.standard_normal((1, 2, S, 16)))
    out = reference.module.attention(q, k, v)
    if S == 700:
        ranked = reference.module.importance(q, k)[0, 0, -60:].sort(descending=True).values
        assert (ranked[:, 7] == ranked[:, 8]).any()
    for head in range(2):
        wanted = one_query_at_a_time(q[0, head], k[0, head], v[0, head])
        np.testing.assert_allclose(out[0, head].numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_chunks_of_queries_change_nothing(
    reference: TensorReference, nominal: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = reference.typed(nominal[0].calls[0])
    monkeypatch.setattr(reference.module, "SCORES", 100 * 700)
    out = reference.module.attention(call["q"], call["k"], call["v"])
    assert torch.equal(out, reference.typed(nominal[0].expected[0], {"y": "bfloat16"})["y"])


def test_the_public_module_is_the_reference(reference: TensorReference) -> None:
    module = reference.module
    module.B, module.H, module.S = 1, 2, 100
    model = module.Model(*module.get_init_inputs())
    inputs = module.get_inputs()
    (wanted,) = module.reference({}, [dict(zip("qkv", inputs, strict=True))])
    assert torch.equal(model(*inputs), wanted["y"])
    assert {name: value.dtype for name, value in model.state_dict().items()} == {
        "_dummy": torch.bfloat16
    }


def in_float32(q: Any, k: Any, order: str) -> Any:
    """Importance by float32 sums: of scores, scaled first, or of keys."""
    S, scale = k.shape[2], q.shape[3] ** -0.5
    q, k, at = q.float(), k.float(), torch.arange(S)
    found = []
    for start in range(0, S, 64):
        keys = k[:, :, start : start + 64]
        seen = at[start : start + 64] <= at[:, None]
        count = seen.sum(1)
        if order == "scores":
            mean = ((q @ keys.mT) * (scale * 1.4426950)).where(seen, 0).sum(3) / count
        else:
            pooled = keys.cumsum(2)[:, :, (count - 1).clamp(min=0)] / count[:, None]
            pooled = pooled.bfloat16().float() if order == "keys in bfloat16" else pooled
            mean = (q * pooled).sum(3) * scale
        found.append(mean.where(count > 0, -torch.inf))
    return torch.stack(found, 3)


def test_drawn_queries_choose_alike_in_float32_and_seldom_were_drawn_again(
    reference: TensorReference,
) -> None:
    module, dims = reference.module, {"B": 1, "H": 2, "S": 2048, "D": 64}
    (call,) = module.make_inputs(dims, 3)["calls"]
    q, k = call["q"], call["k"]
    exact = module.kept_blocks(module.importance(q, k))
    for order in ("scores", "keys"):
        assert torch.equal(module.kept_blocks(in_float32(q, k, order)), exact)
    in_bfloat16 = module.kept_blocks(in_float32(q, k, "keys in bfloat16"))
    assert not torch.equal(in_bfloat16, exact)
    assert not module.too_close(q, k).any()
    rng = torch.Generator().manual_seed(3)
    plain = torch.randn(1, 2, 2048, 64, generator=rng).bfloat16()
    again = (plain != q).any(3)
    assert 0 < again.double().mean() < 0.01
    assert q.double().std().item() == pytest.approx(1, abs=0.01)


def test_queries_that_hang_on_a_rounding_are_called_close(reference: TensorReference) -> None:
    """A ninth block that differs from the eighth in one last bit of one key."""
    rng = torch.Generator().manual_seed(1)
    q, block = (torch.randn(1, 1, n, 8, generator=rng).bfloat16() for n in (640, 64))
    k = block.repeat(1, 1, 10, 1)
    k[0, 0, 64 * 3, 0] *= 1 + 2**-7
    close = reference.module.too_close(q, k)[0, 0]
    assert not close[:512].any()
    assert close[600:].all()


def test_formulas_are_those_of_the_public_deck(task: Task) -> None:
    for shape in task.shapes:
        B, H, S, D = (shape.dims[name] for name in "BHSD")
        work = {name: evaluate(text, shape.dims) for name, text in task.work.model_dump().items()}
        assert work["flops"] == 4 * B * H * S * S * D
        assert work["bytes"] == 4 * 2 * B * H * S * D
        least = sum(min(t + 1, 449) for t in range(S)) * 4 * B * H * D
        assert 0.85 * least < work["floor_flops"] < 0.91 * least
        assert work["floor_bytes"] < work["bytes"]


def dense(what: str = "") -> Attention:
    """All scores and a mask, weights rounded to bfloat16; ``what`` says what is done wrong."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        if what == "zeros":
            return torch.zeros_like(v)
        S = q.shape[2]
        k = k[:, :1].expand_as(k) if what == "the keys of one head" else k
        ago = torch.arange(S)[:, None] - torch.arange(S)
        scores = q.float() @ k.float().mT * q.shape[3] ** (0 if what == "no scale" else -0.5)
        counts = counted(what, q, k, scores, ago)
        seen = scores.masked_fill(counts == 0, -torch.inf)
        top = seen.amax(3, keepdim=True)
        weights = ((seen - top).exp() * counts).bfloat16().float()
        out = (weights @ v.float() / weights.sum(3, keepdim=True)).bfloat16()
        if what == "the last query ignored":
            out[:, :, -1] = 0
        return out

    return attention


def counted(what: str, q: Any, k: Any, scores: Any, ago: Any) -> Any:
    """How often each query counts each key."""
    own = torch.arange(q.shape[2])[:, None] // 64
    chosen = kept(what, q, k, scores, ago, own).repeat_interleave(64, 3)[..., : ago.shape[1]]
    chosen = torch.ones_like(chosen) if what == "dense" else chosen
    width = {"no window": 0, "a tenth of the window left out": 58, "a window of 65": 65}
    near = ago < width.get(what, 64)
    seen = chosen.int() + near if what == "both count" else (chosen | near).int()
    return seen * (ago >= 0)


def kept(what: str, q: Any, k: Any, scores: Any, ago: Any, own: Any) -> Any:
    """(B, H, S, blocks) bool."""
    importance = in_float32(q, k, "keys in bfloat16" if what == "pooled in bfloat16" else "scores")
    blocks = importance.shape[3]
    number = torch.arange(blocks)
    if what == "future keys counted":
        padded = torch.nn.functional.pad(scores, (0, -scores.shape[3] % 64))
        whole = padded.unflatten(3, (blocks, 64)).mean(4)
        importance = torch.where(number == own, whole, importance)
    if what in ("the own block always", "the own block never"):
        extreme = torch.inf if "always" in what else torch.finfo().min
        importance = torch.where(number == own, extreme, importance)
    if what == "by their loudest key":
        seen = scores.masked_fill(ago < 0, -torch.inf)
        seen = torch.nn.functional.pad(seen, (0, -ago.shape[1] % 64), value=-torch.inf)
        importance = seen.unflatten(3, (blocks, 64)).amax(4)
    count = {"seven blocks": 7, "nine blocks": 9}.get(what, 8)
    flipped = what != "ties to the lower index"
    ranked = importance.flip(3) if flipped else importance
    order = ranked.sort(dim=3, descending=True, stable=True).indices[..., :count]
    order = blocks - 1 - order if flipped else order
    found = torch.zeros_like(importance, dtype=torch.bool).scatter(3, order, True)
    return found & (importance > -torch.inf)


def test_weights_in_bfloat16_pass_every_case(
    task: Task, reference: TensorReference, nominal: list[Case], made: list[Case]
) -> None:
    drawn = list(generated(task, reference, 3, "quick"))
    assert len(drawn) >= 20
    assert list(wrong_in(task, reference, [*nominal, *made, *drawn], dense())) == []


@pytest.mark.parametrize(
    "what",
    [
        "zeros",
        "dense",
        "no scale",
        "the last query ignored",
        "no window",
        "a tenth of the window left out",
        "both count",
        "seven blocks",
        "nine blocks",
        "the own block always",
        "the own block never",
        "future keys counted",
        "by their loudest key",
    ],
)
def test_what_is_left_out_or_mistaken_fails_on_ordinary_inputs(
    task: Task, reference: TensorReference, nominal: list[Case], what: str
) -> None:
    assert list(wrong_in(task, reference, nominal, dense(what)))


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ("ties to the lower index", "twin blocks"),
        ("ties to the lower index", "zero keys"),
        ("ties to the lower index", "zero queries"),
        ("a window of 65", "older is better"),
        ("both count", "newer is better"),
        ("by their loudest key", "loud keys"),
        ("the keys of one head", "many heads"),
    ],
)
def test_mistakes_fail_in_the_case_that_is_made_for_them(
    task: Task, reference: TensorReference, made: list[Case], what: str, where: str
) -> None:
    cases = [case for case in made if case.name.startswith(where)]
    assert set(wrong_in(task, reference, cases, dense(what))) == {case.name for case in cases}
    assert list(wrong_in(task, reference, cases, dense())) == []


def test_keys_pooled_in_bfloat16_fail_where_many_blocks_are_close(
    task: Task, reference: TensorReference
) -> None:
    cases = [_drawn(reference, {"B": 1, "H": 1, "S": 2048, "D": 64})]
    assert list(wrong_in(task, reference, cases, dense("pooled in bfloat16")))
    assert list(wrong_in(task, reference, cases, dense())) == []


@pytest.fixture(scope="module")
def built(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Attention]:
    """The oracle's kernels: 16 or 32 queries a warp, chosen by the number of tiles in `launch`."""
    folder = tmp_path_factory.mktemp("nsa")
    source = (task.folder / "submissions" / "oracle" / "nsa.cu").read_text("utf-8")
    limit = "const int WIDE_FROM = 264;"
    assert limit in source
    text, library = folder / "nsa.cpp", folder / "nsa.so"
    text.write_text(source.replace(limit, 'extern "C" { int WIDE_FROM = 0; }'), "utf-8")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-include", str(HEADER)]
    subprocess.run(["g++", *flags, str(text), "-o", str(library)], check=True, timeout=300)
    loaded = ctypes.CDLL(str(library))
    number, size = ctypes.c_long, ctypes.c_int
    loaded.launch.argtypes = [*[number] * 5, size, size, size, number]

    def attention(wide_from: int) -> Attention:
        def attend(q: Any, k: Any, v: Any) -> Any:
            ctypes.c_int.in_dll(loaded, "WIDE_FROM").value = wide_from
            B, H, S, D = q.shape
            out = torch.full_like(q, torch.nan)
            parts = q.new_full((B * H * max(S // 64, 1) * 3 * D,), torch.nan)
            places = (x.data_ptr() for x in (q, k, v, parts, out))
            assert loaded.launch(*places, B * H, S, D, 0) == 0
            return out

        return attend

    return attention


@pytest.mark.parametrize("wide_from", [0, 1 << 30])
def test_the_oracles_kernels_are_right(
    task: Task,
    reference: TensorReference,
    nominal: list[Case],
    made: list[Case],
    built: Callable[[int], Attention],
    wide_from: int,
) -> None:
    wanted = ("twin", "zero queries", "older", "scale 8, 1x1x700", "513 long", "1 long", "63 long")
    chosen = [case for case in made if case.name.startswith(wanted)]
    assert len(chosen) >= 9
    assert list(wrong_in(task, reference, [*nominal, *chosen], built(wide_from))) == []


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


def test_wrong_fails_where_there_are_more_than_eight_blocks_and_nowhere_else(task: Task) -> None:
    grade = graded(task, "wrong", "nominal")
    assert grade.result == GradeResult.WRONG
    assert {line.shape: line.passed for line in grade.correctness} == {
        "b1_h1_s700_d64": False,
        "b1_h1_s641_d128": False,
        "b2_h3_s65_d64": True,
    }


def test_the_source_of_each_cheat_shows_its_mechanism_and_honest_ones_show_none(
    task: Task,
) -> None:
    for line in matrix(task):
        found = {f.mechanism for f in line.audit.findings if f.strength is not Strength.WEAK}
        assert found >= {line.case.mechanism} if line.case.mechanism else not found, line.case.kind
