"""References that work on torch tensors (``framework = "torch"``), for callers with NumPy arrays.

Such a reference has ``make_inputs(shape, seed, device)``, ``reference(params, calls)``, both with
tensors of their real dtypes, and perhaps ``make_weights(shape, seed, device)``: a state dict, which
everybody finds under ``params["weights"]``. NumPy lacks some dtypes: their bits travel instead, and
``interface.raw_inputs``, ``raw_weights`` and ``raw_outputs`` say whose they are.
"""

import fnmatch
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tasks.spec import Interface

Arrays = Mapping[str, Any]

TORCH_NAMES = {
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}
"""What torch calls the floats of `tasks.rawfloats`."""

_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


class TensorReference:
    """One reference: arrays in, arrays out; tensors in, tensors out."""

    ON_DEVICE = True

    def __init__(self, module: ModuleType, interface: Interface) -> None:
        self.module, self._interface = module, interface
        self._torch: Any = importlib.import_module("torch")

    def make_inputs(self, shape: Mapping[str, Any], seed: int, device: str = "cpu") -> Any:
        """``params`` and ``calls`` of one draw, weights included; arrays on a CPU."""
        made = self.make_calls(shape, seed, device)
        params = dict(made["params"])
        if hasattr(self.module, "make_weights"):
            params["weights"] = self.module.make_weights(dict(shape), seed, device)
        if device != "cpu":
            return {"params": params, "calls": made["calls"]}
        if "weights" in params:
            params["weights"] = self._arrays(params["weights"])
        return {"params": params, "calls": [self._arrays(call) for call in made["calls"]]}

    def make_calls(self, shape: Mapping[str, Any], seed: int, device: str) -> Any:
        """The same without weights, as tensors."""
        return self.module.make_inputs(dict(shape), seed, device)

    def reference(self, params: Mapping[str, Any], calls: Sequence[Arrays]) -> list[Arrays]:
        """The outputs of each call, as what the inputs are."""
        are_tensors = all(hasattr(value, "is_cuda") for value in calls[0].values())
        params = dict(params)
        if "weights" in params:
            params["weights"] = self.typed(params["weights"], self._interface.raw_weights)
        with self._torch.no_grad():
            found = self.module.reference(params, [self.typed(call) for call in calls])
        return list(found) if are_tensors else [self._arrays(outputs) for outputs in found]

    def typed(self, values: Arrays, raw: Mapping[str, str] | None = None) -> Arrays:
        """Tensors of their real dtypes, of arrays or of tensors of bits."""
        names = self._interface.raw_inputs if raw is None else raw
        return {name: self._typed(value, raw_of(names, name)) for name, value in values.items()}

    def _typed(self, value: Any, raw: str) -> Any:
        if not hasattr(value, "is_cuda"):
            value = self._torch.from_numpy(value if value.flags.writeable else value.copy())
        kind = getattr(self._torch, TORCH_NAMES[raw]) if raw else value.dtype
        return value if value.dtype == kind else value.view(kind)

    def _arrays(self, values: Arrays) -> Arrays:
        return {name: as_array(value) for name, value in values.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: at small sizes on a busy machine its threads mostly wait."""
    torch: Any = importlib.import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Reference = ModuleType | TensorReference
"""What has ``make_inputs`` and ``reference``."""


def as_array(tensor: Any) -> Any:
    """A NumPy array of a tensor, on whatever device; what NumPy lacks as its bits."""
    torch = importlib.import_module("torch")
    kind = str(tensor.dtype).removeprefix("torch.")
    held = tensor.detach().cpu()
    return (held.view(getattr(torch, _BITS[kind])) if kind in _BITS else held).numpy()


def raw_of(names: Mapping[str, str], name: str) -> str:
    """What the bits of ``name`` are, by the first pattern that fits it; empty for plain ones."""
    return next((raw for pattern, raw in names.items() if fnmatch.fnmatch(name, pattern)), "")
