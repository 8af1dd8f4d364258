"""Finite differences and properties. `python test_solution.py` exits with 1 when one fails."""

import sys

import numpy as np

import solution
from solution import layernorm_backward, layernorm_forward

SIZES = [(1, 1, 1), (1, 1, 5), (2, 3, 4), (3, 1, 17)]
# The error of a central difference is about h^2 |f'''| / 6 + u |f| / h: least near u^(1/3).
STEP = float(np.finfo(np.float64).eps) ** (1 / 3)


def problem(shape, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, *shape)).astype(dtype)
    gamma, beta = rng.standard_normal((2, shape[2])).astype(dtype)
    return x, gamma, beta, dy


def gradients(x, gamma, beta, dy, eps=1e-5):
    _, cache = layernorm_forward(x, gamma, beta, eps)
    return layernorm_backward(dy, cache)


def numeric(argument, x, gamma, beta, dy, eps=1e-5):
    """d sum(dy * y) / d argument, element by element."""
    arguments = [x, gamma, beta]
    result = np.empty_like(arguments[argument])
    for index in np.ndindex(result.shape):
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in arguments]
            moved[argument][index] += sign * STEP
            sides.append(np.sum(dy * layernorm_forward(*moved, eps)[0]))
        result[index] = (sides[0] - sides[1]) / (2 * STEP)
    return result


def check_finite_differences():
    for shape in SIZES:
        for seed in range(3):
            arrays = problem(shape, seed)
            for n, (name, got) in enumerate(
                zip(("dx", "dgamma", "dbeta"), gradients(*arrays), strict=True)
            ):
                wanted = numeric(n, *arrays)
                error = np.max(np.abs(got - wanted)) / max(np.max(np.abs(wanted)), 1e-3)
                assert error < 1e-7, f"{name} at {shape}: relative error {error:.1e}"


def check_offset():
    """Gradients do not depend on a constant added to a row (here: exact in float64)."""
    x, gamma, beta, dy = problem((2, 3, 64))
    x = np.round(x * 2**10) / 2**10
    plain = gradients(x, gamma, beta, dy)
    for got, wanted in zip(gradients(x + 2.0**26, gamma, beta, dy), plain, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def check_degenerate():
    _, gamma, beta, dy = problem((2, 3, 8))
    for x in (np.zeros((2, 3, 8)), np.full((2, 3, 8), 7.25)):
        y, cache = layernorm_forward(x, gamma, beta, 1e-5)
        dx, dgamma, dbeta = layernorm_backward(dy, cache)
        np.testing.assert_array_equal(y, np.broadcast_to(beta, y.shape))
        np.testing.assert_array_equal(dgamma, 0)
        np.testing.assert_allclose(dbeta, dy.sum(axis=(0, 1)))
        np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-9)


def check_views_dtypes_and_inputs():
    for dtype in (np.float32, np.float64):
        x, gamma, beta, dy = problem((4, 5, 33), dtype=dtype)
        copies = [a.copy() for a in (x, gamma, beta, dy)]
        wanted = gradients(x, gamma, beta, dy)
        got = gradients(np.asfortranarray(x), gamma, beta, dy[:, ::-1][:, ::-1])
        for one, two in zip(got, wanted, strict=True):
            assert one.dtype == dtype
            np.testing.assert_array_equal(one, two)
        for before, after in zip(copies, (x, gamma, beta, dy), strict=True):
            np.testing.assert_array_equal(before, after)


def check_without_a_compiler():
    compiled, solution._in_c = solution._in_c, {}
    try:
        check_finite_differences()
        check_offset()
        check_degenerate()
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
                print("FAIL", name, error)
    sys.exit(failed)
