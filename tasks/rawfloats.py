"""Floats that NumPy lacks, from and to their bits: bfloat16 (uint16), float8 e4m3 and e5m2 (uint8).

``float8_e4m3`` is the finite variant that torch calls ``float8_e4m3fn``: bias 7, largest 448, no
infinity, NaN where all bits but the sign are set (Micikevicius et al., "FP8 Formats for Deep
Learning", arXiv 2209.05433, table 1). ``float8_e5m2`` is the upper byte of a float16.
"""

from functools import cache

import numpy as np

BITS: dict[str, type[np.unsignedinteger]] = {
    "bfloat16": np.uint16,
    "float8_e4m3": np.uint8,
    "float8_e5m2": np.uint8,
}
"""The dtype in which each of them travels."""

EPS = {"bfloat16": 2.0**-7, "float8_e4m3": 2.0**-3, "float8_e5m2": 2.0**-2}
"""Distance from 1 to the next larger number."""


def eps(name: str) -> float:
    """That distance for any float dtype, by name."""
    return EPS[name] if name in EPS else float(np.finfo(name).eps)


def itemsize(dtype: str) -> int:
    """Bytes of one element; NumPy has no bfloat16 and no float8."""
    return np.dtype(BITS.get(dtype, dtype)).itemsize


def decoded(name: str, bits: np.ndarray) -> np.ndarray:
    """The values, exactly, as float32."""
    if name == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    values: np.ndarray = _values(name)[bits]
    return values


def encoded(name: str, values: np.ndarray) -> np.ndarray:
    """The bits of the nearest numbers, ties to even; what is too large becomes the largest."""
    if name == "bfloat16":
        wide = np.ascontiguousarray(values, np.float32)
        bits = wide.view(np.uint32)
        near = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(wide), np.uint16(0x7FC0), near)
    table = _values(name)[:128].astype(np.float64)
    table = table[np.isfinite(table)]
    size = np.abs(np.asarray(values, np.float64))
    above = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    down, up = size - table[above - 1], table[above] - size
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    code = np.where(np.isnan(size), 0x7F, code)
    signed: np.ndarray = (code | (np.signbit(values) * 0x80)).astype(np.uint8)
    return signed


@cache
def _values(name: str) -> np.ndarray:
    """All 256 values of a float8, by their bits."""
    codes = np.arange(256, dtype=np.uint16)
    if name == "float8_e5m2":
        halves = (codes << 8).view(np.float16)
        with np.errstate(invalid="ignore"):  # signalling NaN
            return np.where(np.isnan(halves), np.nan, halves).astype(np.float32)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = ((codes >> 3) & 15).astype(np.int64), (codes & 7).astype(np.float64)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    found = sign * np.where(exponent > 0, normal, np.ldexp(mantissa / 8, -6))
    found[(codes & 0x7F) == 0x7F] = np.nan
    return found.astype(np.float32)
