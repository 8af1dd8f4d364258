"""A step of Kimi-Linear. What S holds of a key is taken before it decays, not after."""

from kernels import Model

__all__ = ["Model"]
