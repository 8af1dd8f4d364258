"""From the canonical call to ``layernorm_forward`` and ``layernorm_backward``."""

import gc
from collections import deque
from types import CodeType, FunctionType, ModuleType

import numpy as np

MOST = 10_000  # things that are looked at
_NO_HOLDERS = (str, bytes, type, type(None), ModuleType, CodeType)


def setup(entries, params):
    """The state is ``eps``, and whether what the forward pass keeps is to be reported."""
    return {"eps": params["eps"], "report_cache": bool(params.get("report_cache"))}


def run(entries, state, inputs):
    """One forward and one backward pass; ``cache.<i>`` are the kept arrays, where asked for."""
    y, cache = entries.forward(inputs["x"], inputs["gamma"], inputs["beta"], state["eps"])
    outputs = {"y": y}
    if state["report_cache"]:
        outputs |= {f"cache.{i}": array for i, array in enumerate(_arrays(cache))}
    gradients = entries.backward(inputs["dy"], cache)
    if not isinstance(gradients, dict):
        gradients = dict(zip(("dx", "dgamma", "dbeta"), gradients, strict=True))
    return outputs | {name: gradients[name] for name in ("dx", "dgamma", "dbeta")}


def _arrays(cache):
    """Copies of every array and number that a cache holds, whatever it holds them in.

    Containers, attributes, slots and closures are followed; types, modules and what a function
    finds in its module are not. A view holds the whole of what it is a view of.
    """
    seen, waiting = set(), deque([cache])
    while waiting and len(seen) < MOST:
        value = waiting.popleft()
        while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
            value = value.base
        if id(value) in seen or isinstance(value, _NO_HOLDERS):
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray | np.generic | float | int):
            yield np.array(value)
        elif isinstance(value, FunctionType):
            waiting += [value.__closure__, value.__defaults__, value.__kwdefaults__]
            waiting.append(value.__dict__)
        else:
            waiting += gc.get_referents(value)
