"""Against the naive version, and the corners. `python test_solution.py` exits with 1 on a failure."""

import sys

import numpy as np

import solution
from solution import fused_softmax_topk


def naive(logits, k):
    """Softmax in float64 to memory, then a full stable sort."""
    wide = logits.astype(np.float64)
    softmax = np.exp(wide - wide.max(axis=-1, keepdims=True))
    softmax /= softmax.sum(axis=-1, keepdims=True)
    indices = np.argsort(-wide, axis=-1, kind="stable")[..., :k]
    return indices, np.take_along_axis(softmax, indices, axis=-1)


def same(logits, k):
    indices, probabilities = fused_softmax_topk(logits, k)
    wanted_indices, wanted = naive(logits, k)
    assert indices.dtype == np.int64 and probabilities.dtype == np.float32
    np.testing.assert_array_equal(indices, wanted_indices)
    np.testing.assert_allclose(probabilities, wanted, rtol=2e-6, atol=1e-37)


def normal(shape, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def check_sizes():
    for V in (1, 2, 63, 64, 65, 2047, 2048, 2049, 50257):
        for k in sorted({1, min(5, V), min(V, 256)}):
            same(normal((1, 3, V), V), k)
    same(normal((2, 2, 97)), 97)


def check_ties():
    rng = np.random.default_rng(0)
    same(rng.integers(-2, 3, (2, 3, 5000)).astype(np.float32), 40)
    same(np.zeros((1, 2, 3000), np.float32), 9)
    same(np.where(rng.random((1, 2, 3000)) < 0.5, np.float32(-0.0), np.float32(0)), 9)


def check_masked_and_large():
    logits = np.full((1, 3, 4000), -np.inf, np.float32)
    logits[..., 3210] = 1
    same(logits, 1)
    same(logits, 6)
    same(normal((1, 3, 9000), scale=1e4), 20)
    same(normal((1, 3, 9000)) + np.float32(1e4), 20)
    same(normal((1, 3, 9000)) - np.float32(1e4), 20)


def check_rows_apart():
    offsets = 700 * (np.arange(15).reshape(3, 5, 1) % 2)
    same((normal((3, 5, 3001)) + offsets).astype(np.float32), 7)


def check_views_types_and_inputs():
    logits = normal((3, 4, 2100))
    before = logits.copy()
    for view in (logits[:, :, ::3], logits[:, ::-1, :-5], logits.transpose(1, 0, 2)):
        same(view, 5)
    same(logits.astype(np.float16), 30)
    np.testing.assert_array_equal(logits, before)


def check_without_a_compiler():
    compiled, solution._in_c = solution._in_c, None
    try:
        check_ties()
        check_masked_and_large()
    finally:
        solution._in_c = compiled


if __name__ == "__main__":
    failed = 0
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                print("ok  ", name)
            except AssertionError as error:
                failed = 1
                print("FAIL", name, str(error)[:500])
    sys.exit(failed)
