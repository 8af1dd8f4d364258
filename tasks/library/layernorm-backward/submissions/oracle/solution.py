"""Layer norm, forward and backward, in C called from NumPy (and in NumPy without a compiler).

Forward, for each row of D elements, with r = 1 / sqrt(var + eps):

    xhat = (x - mean) * r            y = gamma * xhat + beta

Backward. With g = dy * gamma (the gradient of xhat):

    dbeta  = sum over rows of dy
    dgamma = sum over rows of dy * xhat
    dx     = g through dxhat/dx. xhat_i depends on x_j directly (r where i = j), through the mean
             (-r / D for every j), and through var (-xhat_i * xhat_j * r / D), so
           = r * (g - mean(g) - xhat * mean(g * xhat))

Two row reductions, mean(g) and mean(g * xhat), are all that dx needs beside xhat and r.

The cache holds x and gamma by reference and two numbers a row: what is left of the mean after the
row's first element is subtracted, and r. xhat is formed again from x in two subtractions and a
multiplication, which cost less than storing and reading a second (B, T, D) array: both passes are
bound by memory.

A row stays in L1 between its reductions, so each pass reads its operands once and writes its result
once. All sums are taken in float64.

Stability. E[x^2] - E[x]^2 loses every digit once |mean| / std nears 1 / sqrt(machine epsilon).
Centring first cures that, but a mean is itself rounded to the dtype of x: at 1e8 by 1e-8 in float64
and by 4 in float32. The first element of a row is exact, its difference to the others is exact or
nearly so when the offset dwarfs the spread, and the mean of what is left (`rest`) is small. Forward
and backward make the same two subtractions and so get the same bits. More in README.md.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def layernorm_forward(x, gamma, beta, eps=1e-5):
    """(y, cache) for x (B, T, D); y has the dtype of x."""
    rows, D = x.shape[0] * x.shape[1], x.shape[2]
    flat = np.ascontiguousarray(x).reshape(rows, D)  # x itself in the usual layout
    gamma, beta = np.ascontiguousarray(gamma), np.ascontiguousarray(beta)
    y = np.empty((rows, D), x.dtype)
    rest, rstd = np.empty((2, rows, 1), x.dtype)
    forward, _ = _kernels(x.dtype)
    forward(flat, gamma, beta, eps, y, rest, rstd)
    return y.reshape(x.shape), (flat, rest, rstd, gamma)


def layernorm_backward(dy, cache):
    """(dx, dgamma, dbeta) for dy (B, T, D) and the cache of the forward pass."""
    x, rest, rstd, gamma = cache
    flat = np.ascontiguousarray(dy).reshape(x.shape)
    dx = np.empty(x.shape, x.dtype)
    dgamma, dbeta = np.zeros((2, x.shape[1]))
    _, backward = _kernels(x.dtype)
    backward(x, flat, gamma, rest, rstd, dx, dgamma, dbeta)
    return dx.reshape(dy.shape), dgamma.astype(x.dtype), dbeta.astype(x.dtype)


def _kernels(dtype):
    return _in_c.get(dtype.name) or (_forward_in_numpy, _backward_in_numpy)


# --- C ----------------------------------------------------------------------------------------

SOURCE = r"""
#include <math.h>
#include <stdint.h>

void forward(int64_t rows, int64_t D, const REAL *restrict x, const REAL *restrict gamma,
             const REAL *restrict beta, double eps, REAL *restrict y, REAL *restrict rest,
             REAL *restrict rstd)
{
    for (int64_t n = 0; n < rows; n++, x += D, y += D) {
        REAL first = x[0];
        double sum = 0, squares = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < D; i++)
            sum += x[i] - first;
        REAL mean = (REAL)(sum / D);
        #pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < D; i++) {
            double centred = (x[i] - first) - mean;
            squares += centred * centred;
        }
        REAL r = (REAL)(1 / sqrt(squares / D + eps));
        #pragma omp simd
        for (int64_t i = 0; i < D; i++)
            y[i] = ((x[i] - first) - mean) * r * gamma[i] + beta[i];
        rest[n] = mean;
        rstd[n] = r;
    }
}

void backward(int64_t rows, int64_t D, const REAL *restrict x, const REAL *restrict dy,
              const REAL *restrict gamma, const REAL *restrict rest, const REAL *restrict rstd,
              REAL *restrict dx, double *restrict dgamma, double *restrict dbeta)
{
    for (int64_t n = 0; n < rows; n++, x += D, dy += D, dx += D) {
        REAL first = x[0], mean = rest[n], r = rstd[n];
        double sum = 0, projection = 0;
        #pragma omp simd reduction(+ : sum, projection)
        for (int64_t i = 0; i < D; i++) {
            REAL xhat = ((x[i] - first) - mean) * r, g = dy[i] * gamma[i];
            dgamma[i] += (double)dy[i] * xhat;
            dbeta[i] += dy[i];
            sum += g;
            projection += (double)g * xhat;
        }
        REAL a = (REAL)(sum / D), p = (REAL)(projection / D);
        #pragma omp simd
        for (int64_t i = 0; i < D; i++)
            dx[i] = r * (dy[i] * gamma[i] - a - ((x[i] - first) - mean) * r * p);
    }
}
"""


def _compiled(real):
    """(forward, backward) for `float` or `double`; None where no compiler works."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "norm.c"), Path(folder, "norm.so")
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-fopenmp-simd", f"-DREAL={real}"]
        command += ["-fPIC", "-shared", "-o", str(library), str(source), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            loaded = ctypes.CDLL(str(library))
        except (OSError, subprocess.SubprocessError):
            return None
    return _called(loaded.forward), _called(loaded.backward)


def _called(function):
    def call(x, *others):
        rows, D = map(ctypes.c_int64, x.shape)
        function(
            rows, D, ctypes.c_void_p(x.ctypes.data),
            *(
                ctypes.c_void_p(o.ctypes.data) if isinstance(o, np.ndarray) else ctypes.c_double(o)
                for o in others
            ),
        )

    function.restype = None
    return call


_in_c = {"float32": _compiled("float"), "float64": _compiled("double")}

# --- NumPy ------------------------------------------------------------------------------------

TILE_BYTES = 256 * 1024  # of one operand; four of them fit an L2 of 1 MB


def _forward_in_numpy(x, gamma, beta, eps, y, rest, rstd):
    for tile in _tiles(x):
        centred = np.subtract(x[tile], x[tile, :1], out=y[tile])
        rest[tile] = centred.mean(axis=1, keepdims=True)
        centred -= rest[tile]
        var = np.einsum("rd,rd->r", centred, centred)[:, None] / x.shape[1]
        rstd[tile] = 1 / np.sqrt(var + eps)
        centred *= rstd[tile]
        centred *= gamma
        centred += beta


def _backward_in_numpy(x, dy, gamma, rest, rstd, dx, dgamma, dbeta):
    for tile in _tiles(x):
        gradient = dy[tile]
        xhat = x[tile] - x[tile, :1]
        xhat -= rest[tile]
        xhat *= rstd[tile]
        dgamma += np.einsum("rd,rd->d", gradient, xhat)
        dbeta += gradient.sum(axis=0)
        g = np.multiply(gradient, gamma, out=dx[tile])
        xhat *= np.einsum("rd,rd->r", g, xhat)[:, None] / x.shape[1]
        g -= g.mean(axis=1, keepdims=True)
        g -= xhat
        g *= rstd[tile]


def _tiles(x):
    step = max(1, TILE_BYTES // (x.shape[1] * x.itemsize))
    return [slice(start, start + step) for start in range(0, len(x), step)]
