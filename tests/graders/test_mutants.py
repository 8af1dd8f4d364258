"""Seeded mutants of every oracle of the library: the quick tier of the plan catches each."""

from functools import cache

import pytest

from candidates import shipped
from mutants import STALE, first_failure, mutated
from tasks.case import Case
from tasks.loader import load_reference, load_task
from tasks.properties import all_cases

LIBRARY = {
    name: load_task(name) for name in ("kv-cache", "layernorm-backward", "fused-softmax-topk")
}


@cache
def quick_plan(name: str) -> list[Case]:
    task = LIBRARY[name]
    return list(all_cases(task, load_reference(task), 2024, "quick"))


LAYERNORM = {
    "zeros": "\n_forward = layernorm_forward\n\ndef layernorm_forward(x, *others):\n"
    "    y, kept = _forward(x, *others)\n    return np.zeros_like(y), kept\n",
    "the projection left out": ("- ((x[i] - first) - mean) * r * p);", ");"),
    "the mean left out": (" - a - ", " - "),
    "the ragged tail skipped": (
        "for (int64_t i = 0; i < D; i++)\n            y[i]",
        "for (int64_t i = 0; i < (D > 8 ? D / 8 * 8 : D); i++)\n            y[i]",
    ),
    "the last row ignored": (
        "n < rows; n++, x += D, y += D)",
        "n < rows - (rows > 1); n++, x += D, y += D)",
    ),
    "the last gradient ignored": (
        "n < rows; n++, x += D, dy",
        "n < rows - (rows > 1); n++, x += D, dy",
    ),
    "variance over D - 1": ("squares / D + eps", "squares / (D > 1 ? D - 1 : 1) + eps"),
    "no eps": ("squares / D + eps", "squares / D + 1e-30"),
    "summed in half precision": "\n_backward = layernorm_backward\n\n"
    "def layernorm_backward(dy, cache):\n    dx, dgamma, _ = _backward(dy, cache)\n"
    "    half = dy.sum(axis=(0, 1), dtype=np.float16)\n"
    "    return dx, dgamma, half.astype(dx.dtype)\n",
    "the first result of a shape": STALE + "\nlayernorm_forward = stale(layernorm_forward)\n",
    "gamma forgotten": ("r * (dy[i] * gamma[i] -", "r * (dy[i] -"),
}
FUSED = {
    "zeros": "\n_topk = fused_softmax_topk\n\ndef fused_softmax_topk(logits, k):\n"
    "    indices, p = _topk(logits, k)\n    return indices, np.zeros_like(p)\n",
    "ties by the higher index": ("a.index > b.index", "a.index < b.index"),
    "the ragged tail skipped": (
        "V - start < TILE ? V - start : TILE",
        "V - start < TILE ? (V - start > 8 ? (V - start) / 8 * 8 : V - start) : TILE",
    ),
    "the last row ignored": ("r < rows; r++", "r < rows - (rows > 1); r++"),
    "the last element ignored": "\n_topk = fused_softmax_topk\n\n"
    "def fused_softmax_topk(logits, k):\n"
    "    return _topk(logits[..., :-1] if logits.shape[-1] > k else logits, k)\n",
    "the sum over the chosen": "\n_topk = fused_softmax_topk\n\n"
    "def fused_softmax_topk(logits, k):\n    indices, p = _topk(logits, k)\n"
    "    return indices, p / p.sum(axis=-1, keepdims=True)\n",
    "the sum not rescaled": ("s > 0 ? s * exp((double)m - top) : 0", "s"),
    "logits in half precision": "\n_topk = fused_softmax_topk\n\n"
    "def fused_softmax_topk(logits, k):\n    return _topk(logits.astype(np.float16), k)\n",
    "the first result of a shape": STALE + "\nfused_softmax_topk = stale(fused_softmax_topk)\n",
    "ascending": "\n_topk = fused_softmax_topk\n\ndef fused_softmax_topk(logits, k):\n"
    "    indices, p = _topk(logits, k)\n"
    "    return indices[..., ::-1].copy(), p[..., ::-1].copy()\n",
}
READ = "slab.data[rows, :, :length] for slab in"
KV = {
    "zeros": "\n\nclass KVCache(KVCache):\n    def attend(self, layer, q):\n"
    "        return np.zeros_like(q)\n",
    "a tenth of the context left out": (READ, READ.replace(":length]", "length // 10 : length]")),
    "the last token left out": (READ, READ.replace(":length]", ": max(length - 1, 1)]")),
    "the last row ignored": "\n\nclass KVCache(KVCache):\n    def attend(self, layer, q):\n"
    "        out = super().attend(layer, q)\n        out[-1] *= len(out) == 1\n"
    "        return out\n",
    "scores in half precision": (
        "scores /= scores.sum",
        "scores[...] = scores.astype(np.float16)\n    scores /= scores.sum",
    ),
    "no maximum subtracted": ("scores -= scores.max(axis=-1, keepdims=True)", "pass"),
    "rows that are not active get the token": ("active is None or bool(np.all(active))", "True"),
    "a row keeps a token after its reset": ("self.of_row[rows] = 0", "self.of_row[rows] = 1"),
    "a token lost where storage grows": (
        "fresh[:, :, :used] = self.data[:, :, :used]",
        "fresh[:, :, : used - 1] = self.data[:, :, : used - 1]",
    ),
    "results of the first step again": (
        "out = np.zeros(",
        "if hasattr(self, 'out'):\n            return self.out\n        out = self.out = np.zeros(",
    ),
}
MUTANTS = {"layernorm-backward": LAYERNORM, "fused-softmax-topk": FUSED, "kv-cache": KV}


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name, changes in MUTANTS.items() for what in changes]
)
def test_the_quick_plan_catches_every_mutant_of_an_oracle(name, what):
    source = mutated(shipped(LIBRARY[name], "oracle"), MUTANTS[name][what])
    assert first_failure(LIBRARY[name], source, quick_plan(name)) is not None


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("kind", ["oracle", "naive"])
def test_honest_submissions_pass_the_whole_quick_plan(name, kind):
    task = LIBRARY[name]
    assert first_failure(task, shipped(task, kind), quick_plan(name)) is None
