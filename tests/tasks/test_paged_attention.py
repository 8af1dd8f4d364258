"""paged-attention: the reference, the cases, and the submissions, in Triton's interpreter."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from tasks import loader
from tasks.case import Case
from tasks.formula import evaluate
from tasks.spec import Task
from tasks.tensors import TensorReference
from tensor_candidates import (
    failure,
    first_failure,
    mutant,
    quick_plan,
    shipped_module,
    tensor_reference,
)

NAMES = ("batch", "heads", "kv_heads", "head_dim", "seq", "page")


@pytest.fixture(scope="module")
def task() -> Task:
    return loader.load_task("paged-attention")


@pytest.fixture(scope="module")
def reference(task: Task) -> TensorReference:
    return tensor_reference(task)


@pytest.fixture(scope="module")
def plan(task: Task) -> list[Case]:
    return quick_plan(task)


@pytest.fixture(scope="module")
def decoding(reference: TensorReference) -> Case:
    """One step of the size of a scored one, but for the number of sequences."""
    return sized(reference, 2, 32, 8, 128, 1023, 16)


def sized(reference: TensorReference, *size: int, repeats: int = 1) -> Case:
    made = reference.make_inputs(dict(zip(NAMES, size, strict=True)), 3)
    expected = reference.reference(made["params"], made["calls"])
    calls = made["calls"] * repeats
    return Case("sized", "nominal", "3", made["params"], calls, [*expected] * repeats)


def token_by_token(call: dict[str, torch.Tensor]) -> np.ndarray:
    """Plain loops: each token is looked up alone, sums are exact."""
    query, cache = call["query"].double().numpy(), call["kv_cache"].double().numpy()
    table, lengths = call["block_table"].tolist(), call["seq_lens"].tolist()
    page, kv_heads = cache.shape[1:3]
    batch, heads, dim = query.shape
    found = np.empty(query.shape)
    for b in range(batch):
        for h in range(heads):
            of = h // (heads // kv_heads)
            rows = [cache[table[b][t // page], t % page, of] for t in range(lengths[b])]
            scores = [math.fsum(query[b, h] * row[:dim]) / math.sqrt(dim) for row in rows]
            weights = [math.exp(score - max(scores)) for score in scores]
            for d in range(dim):
                products = (w * row[dim + d] for w, row in zip(weights, rows, strict=True))
                found[b, h, d] = math.fsum(products) / math.fsum(weights)
    return found


Attention = Callable[..., torch.Tensor]


def in_torch(attention: Attention) -> SimpleNamespace:
    """A submission of which only the attention is of interest."""

    class Model(torch.nn.Module):
        def __init__(self, *init: int) -> None:
            super().__init__()

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return attention(*inputs).to(torch.bfloat16)

    return SimpleNamespace(Model=Model)


def dense(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    weights_as: Any = torch.float32,
    skip: float = 0.0,
    ignore: str = "",
    parts: int = 1,
) -> torch.Tensor:
    """In float32, or as asked for; ``skip`` is the share of the context that is left out."""
    _, heads, dim = query.shape
    kv = kv_cache[block_table.long()].flatten(1, 2).float()
    keys, values = kv.repeat_interleave(heads // kv.shape[2], dim=2).split(dim, dim=-1)
    scores = torch.einsum("bhd,bthd->bht", query.float(), keys)
    scores *= 0 if ignore == "query" else 1 if ignore == "scale" else dim**-0.5
    place = torch.arange(keys.shape[1])
    held = (place < seq_lens[:, None]) & (place >= (seq_lens * skip).ceil()[:, None])
    scores = scores.masked_fill(~held[:, None], -torch.inf)
    peak = 0 if ignore == "peak" else scores.amax(-1, keepdim=True)
    weights = (scores - peak).exp()
    shares = (weights.to(weights_as).float() / weights.sum(-1, keepdim=True)).chunk(parts, -1)
    each = zip(shares, values.chunk(parts, 1), strict=True)
    sums = [torch.einsum("bht,bthd->bhd", share, part) for share, part in each]
    return sum(part.to(weights_as).float() for part in sums)


def test_the_reference_agrees_with_plain_loops(reference: TensorReference) -> None:
    for size, ragged in (((3, 8, 2, 64, 40, 16), 1), ((1, 4, 1, 64, 33, 16), 0)):
        shape = {**dict(zip(NAMES, size, strict=True)), "ragged": ragged}
        made = reference.make_calls(shape, 5, "cpu")
        (call,) = made["calls"]
        (got,) = reference.module.reference(made["params"], [call])
        np.testing.assert_allclose(got["y"], token_by_token(call), rtol=1e-6, atol=1e-9)


def test_working_in_pieces_changes_nothing(reference: TensorReference) -> None:
    made = reference.make_calls(dict(zip(NAMES, (5, 8, 2, 64, 70, 16), strict=True)), 1, "cpu")
    (whole,) = reference.module.reference(made["params"], made["calls"])
    at_once, reference.module.AT_ONCE = reference.module.AT_ONCE, 1
    (pieces,) = reference.module.reference(made["params"], made["calls"])
    reference.module.AT_ONCE = at_once
    assert torch.allclose(whole["y"], pieces["y"], rtol=1e-6, atol=0)


def test_the_public_module_gives_what_the_reference_gives(reference: TensorReference) -> None:
    module = reference.module
    model = module.Model(2, 8, 2, 64, 50, 16)
    assert model.state_dict() == {}
    made = module.make_inputs(dict(zip(NAMES, (2, 8, 2, 64, 50, 16), strict=True)), 1)
    y = model(*made["calls"][0].values())
    (wanted,) = module.reference(made["params"], made["calls"])
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, wanted["y"].to(torch.bfloat16))
    assert list(made["calls"][0]) == ["query", "kv_cache", "block_table", "seq_lens"]


def test_pages_are_a_shuffled_pool_with_some_to_spare(reference: TensorReference) -> None:
    made = reference.make_inputs(dict(zip(NAMES, (4, 8, 2, 64, 100, 16), strict=True)), 1)
    call = made["calls"][0]
    pages = call["block_table"].ravel()
    assert len(set(pages.tolist())) == len(pages) == 4 * 7
    assert call["kv_cache"].shape[0] == 4 * 7 + 8
    assert np.any(np.diff(pages) != 1)


def test_formulas_are_those_of_the_public_deck(task: Task) -> None:
    for shape in task.shapes:
        batch, heads, kv_heads, dim, seq, _ = (shape.dims[name] for name in NAMES)
        reads = 2 * batch * seq * kv_heads * dim * 2
        assert evaluate(task.work.flops, shape.dims) == 4 * batch * heads * seq * dim
        assert evaluate(task.work.bytes, shape.dims) == reads + 4 * batch * heads * dim
        assert evaluate(task.work.floor_bytes, shape.dims) == reads


def test_the_oracle_is_right(task: Task, plan: list[Case]) -> None:
    assert first_failure(task, shipped_module(task, "oracle"), plan) is None


def test_naive_is_right(task: Task, plan: list[Case]) -> None:
    some = [case for case in plan if case.calls[0]["query"].size < 1100]
    assert len(some) > 10
    assert first_failure(task, shipped_module(task, "naive"), some) is None


@pytest.mark.parametrize("programs", [1, 12])
def test_the_oracle_is_right_however_a_sequence_is_split(
    task: Task, reference: TensorReference, plan: list[Case], programs: int, tmp_path: Path
) -> None:
    """One part of several tiles, or parts of several; small sizes have one tile a part."""
    changed = mutant(task, "oracle", fewer(programs), tmp_path)
    steered = [case for case in plan if case.name.startswith(STEERED)]
    cases = [sized(reference, 2, 8, 2, 64, 300, 16, repeats=2), *steered]
    assert first_failure(task, changed, cases) is None


STEERED = ("growing", "falling", "one key", "shorter")


def fewer(programs: int) -> tuple[str, str]:
    return "PROGRAMS = 264", f"PROGRAMS = {programs}"


def test_wrong_attends_to_what_lies_behind_the_last_token(task: Task, plan: list[Case]) -> None:
    wrong, nominal = shipped_module(task, "wrong"), [c for c in plan if c.group == "nominal"]
    failed = {case.name for case in nominal if failure(task, wrong, case)}
    assert failed == {"b2_h8_kv2_d64_l75", "b3_h8_kv1_d128_l90_ragged"}


MUTANTS: dict[str, tuple[str, str] | str] = {
    "the last key left out": ("each * BLOCK, length)", "each * BLOCK, length - 1)"),
    "the last part left out": ("before == SPLITS - 1", "before == SPLITS - 2"),
    "the counter is not set back": ("        tl.store(arrived + pair, 0)", "        pass"),
    "tails are not masked": ("held = token < end", "held = token < first + each * BLOCK"),
    "sums not rescaled": ("total = total * shrink +", "total = total +"),
    "results not rescaled": ("result = result * shrink[:, None] +", "result = result +"),
    "parts weigh alike": ("share = tl.exp2(of - tl.max(of, 0))", "share = tl.exp2(of - of)"),
    "another head's keys": ("pair = b * KV_HEADS + kv_head", "pair = b * KV_HEADS"),
    "pages in order": ("tl.load(table + token // PAGE, mask=held, other=0)", "(token // PAGE)"),
    "a scale of its own": ("head_dim**-0.5", "head_dim**-0.55"),
    "the first result": "\n_kept = []\n_forward = Model.forward\n\n\ndef forward(self, *inputs):\n"
    "    _kept or _kept.append(_forward(self, *inputs))\n    return _kept[0]\n\n\n"
    "Model.forward = forward\n",
}


@pytest.mark.parametrize("what", MUTANTS)
def test_mutants_of_the_oracle_fail(
    task: Task, reference: TensorReference, plan: list[Case], what: str, tmp_path: Path
) -> None:
    changes = [MUTANTS[what]]
    if "rescaled" in what:  # within a part, where that has several tiles
        changes.append(fewer(1))
    changed = mutant(task, "oracle", changes, tmp_path)
    steered = [case for case in plan if case.name.startswith(STEERED)]
    cases = [sized(reference, 2, 8, 2, 64, 150, 16, repeats=3), *steered]
    assert first_failure(task, changed, cases) is not None


FAKES: dict[str, Attention] = {
    "zeros": lambda query, *_: torch.zeros_like(query),
    "the query": lambda query, *_: query,
    "a tenth of the context left out": lambda *inputs: dense(*inputs, skip=0.1),
    "one key left out": lambda *inputs: dense(*inputs, skip=1e-3),
    "the mean of the values": lambda *inputs: dense(*inputs, ignore="query"),
    "no scale": lambda *inputs: dense(*inputs, ignore="scale"),
    "cache in float8": lambda query, cache, *others: dense(
        query, cache.to(torch.float8_e4m3fn).to(cache.dtype), *others
    ),
    "weights in float8": lambda *inputs: dense(*inputs, weights_as=torch.float8_e4m3fn),
    "pages in order": lambda query, cache, table, lengths: dense(
        query, cache, torch.arange(table.numel()).view(table.shape), lengths
    ),
}


@pytest.mark.parametrize("what", FAKES)
def test_what_is_less_work_fails_at_the_nominal_scale(
    task: Task, decoding: Case, what: str
) -> None:
    assert failure(task, in_torch(FAKES[what]), decoding) is not None


HONEST: dict[str, Attention] = {
    "float32": dense,
    "weights in bfloat16": lambda *inputs: dense(*inputs, weights_as=torch.bfloat16),
    "parts in bfloat16, too": lambda *inputs: dense(*inputs, weights_as=torch.bfloat16, parts=4),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_precision_passes(task: Task, plan: list[Case], decoding: Case, what: str) -> None:
    assert first_failure(task, in_torch(HONEST[what]), [decoding, *plan]) is None


def test_exp_without_the_maximum_fails_where_scores_are_large(task: Task, plan: list[Case]) -> None:
    careless = in_torch(lambda *inputs: dense(*inputs, ignore="peak"))
    failed = {case.name.split(",")[0] for case in plan if failure(task, careless, case)}
    assert {"far above", "far below"} <= failed


@pytest.mark.parametrize(("kind", "word"), [("oracle", "pass"), ("wrong", "wrong")])
def test_a_whole_grade_of_the_rehearsal(task: Task, kind: str, word: str) -> None:
    folder = task.folder / "submissions" / kind
    request = GradeRequest(task, folder, tier="quick", correctness_only=True, device="cpu")
    assert RefereeGrader().grade(request).result == word
