"""A step of Kimi-Linear by one block of threads in one launch: right, and slow."""

from kernels import Model

__all__ = ["Model"]
