"""An adapter of our own in place of a task's: writes its outputs, after a kernel of known length.

It runs where submissions run. What its paced calls take beyond what its own CUDA events say is
what a paced call holds beside the kernel: way, digest, and what events do not see.
"""

import time
from typing import Any


class HostState:
    """Outputs in host memory; ``spin`` is nanoseconds."""

    def __init__(self, params: Any) -> None:
        import numpy as np  # noqa: PLC0415 - a GPU's worker takes the other one

        self._spin = params["spin"]
        self._outputs = {o["name"]: np.zeros(o["shape"], o["dtype"]) for o in params["outputs"]}

    def run(self) -> Any:
        """One call."""
        until = time.perf_counter_ns() + self._spin
        for output in self._outputs.values():
            output.fill(1)
        while time.perf_counter_ns() < until:
            pass
        return self._outputs


class DeviceState:
    """Outputs on the GPU. ``spin`` is its clock cycles, ``wait`` nanoseconds before any launch."""

    def __init__(self, params: Any) -> None:
        import torch  # noqa: PLC0415

        self._sleep = torch.cuda._sleep
        self._spin, self._wait = params["spin"], params["wait"]
        self._outputs = {
            o["name"]: torch.zeros(o["shape"], dtype=getattr(torch, o["dtype"]), device="cuda")
            for o in params["outputs"]
        }

    def run(self) -> Any:
        """One call: written outputs lie in the cache for the digest as a kernel leaves them."""
        if self._wait:
            until = time.perf_counter_ns() + self._wait
            while time.perf_counter_ns() < until:
                pass
        if self._spin:
            self._sleep(self._spin)  # type: ignore[no-untyped-call,unused-ignore]
        for output in self._outputs.values():
            output.zero_()
        return self._outputs


def setup(_entries: Any, params: Any) -> Any:
    """Make the outputs."""
    return HostState(params) if params["device"] == "cpu" else DeviceState(params)


def run(_entries: Any, state: Any, _inputs: Any) -> Any:
    """One call."""
    return state.run()
