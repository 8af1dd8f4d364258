"""C through ctypes, built by gcc at import."""

import ctypes
import pathlib
import subprocess
import tempfile

import numpy as np

SOURCE = """
void scaled_add(const float *x, float *y, float a, float b, long n) {
    for (long i = 0; i < n; i++) y[i] = a * x[i] + b;
}
"""


def _built():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    command = ["gcc", "-O3", "-shared", "-fPIC", "-o", "kernel.so", "kernel.c"]
    subprocess.run(command, cwd=folder, check=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).scaled_add
    kernel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_float] * 2 + [ctypes.c_long]
    return kernel


_kernel = _built()


def scaled_add(x, a, b):
    """y = a x + b."""
    y = np.empty_like(x)
    _kernel(x.ctypes.data, y.ctypes.data, a, b, x.size)
    return y
