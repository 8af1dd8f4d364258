"""From the canonical step to ``KVCache``: constructor, ``append``, ``attend``, ``reset``."""

import inspect

import numpy as np

# Constructor parameters by the names that people give them; the first is the prompt's.
_PARAMETERS = {
    "layers": ("layers", "num_layers", "n_layers", "n_layer"),
    "heads": ("heads", "num_heads", "n_heads", "n_head"),
    "kv_heads": ("kv_heads", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("head_dim", "d_head", "head_size", "dim_head"),
    "batch": ("batch", "batch_size", "max_batch", "n_batch"),
    "dtype": ("dtype",),
    "tokens": ("max_seq_len", "max_len", "max_tokens", "capacity", "max_seq"),
}
_METHODS = {
    "append": ("append", "update", "push", "add", "write"),
    "attend": ("attend", "attention", "forward"),
    "reset": ("reset", "clear", "reset_rows"),
}


class _State:
    """One cache, its methods, and the buffers that a decoder would reuse."""

    def __init__(self, cache, params):
        self.append, self.attend, self.reset = (_method(cache, name) for name in _METHODS)
        self.layers = range(params["layers"])
        self.append_first = params.get("order") == "append_first"
        size = (params["batch"], params["kv_heads"], params["head_dim"])
        self.buffers = [np.empty(size, params["dtype"]) for _ in range(2)]
        self.shown = [buffer.view() for buffer in self.buffers]
        for view in self.shown:
            view.flags.writeable = False

    def put(self, layer, k, v, active):
        """Append one token from the reused buffers."""
        self.buffers[0][...] = k
        self.buffers[1][...] = v
        self.append(layer, *self.shown, active)


def setup(entries, params):
    """An empty cache of the variant that the case asks for."""
    factory = {
        "plain": entries.KVCache,
        "grouped": entries.GroupedQueryKVCache,
        "quantized": entries.QuantizedKVCache,
    }[params.get("variant", "plain")]
    return _State(factory(**_arguments(factory, params)), params)


def run(entries, state, inputs):
    """One step of the decoder."""
    if inputs["reset"].any():
        state.reset(np.flatnonzero(inputs["reset"]))
    for n, active in enumerate(inputs.get("context_active", ())):
        for layer in state.layers:
            k, v = inputs["context_k"][n, layer], inputs["context_v"][n, layer]
            state.put(layer, k, v, active)
    out = np.empty_like(inputs["q"])
    if state.append_first:
        for layer in state.layers:
            state.put(layer, inputs["k"][layer], inputs["v"][layer], inputs["active"])
    for layer in reversed(state.layers) if state.append_first else state.layers:
        if not state.append_first:
            state.put(layer, inputs["k"][layer], inputs["v"][layer], inputs["active"])
        result = _attend(state, inputs["q"][layer], layer)
        if len(state.layers) == 1:  # the submission's own array, for whoever looks at what it is
            return {"out": result.reshape(out.shape)}
        out[layer] = result
    return {"out": out}


def _attend(state, query, layer):
    """The result of `attend`, which has to be of the shape and dtype that the prompt says."""
    result = state.attend(layer, query)
    if result.shape != query.shape or result.dtype != query.dtype:
        raise TypeError(
            f"attend returned {result.dtype} {result.shape}, not {query.dtype} {query.shape}"
        )
    return result


def _arguments(factory, params):
    """The constructor's arguments, under the names that it has for them."""
    accepted = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        accepted = {spellings[0]: None for spellings in list(_PARAMETERS.values())[:-1]}
    found = {}
    for name, spellings in _PARAMETERS.items():
        for spelling in spellings:
            if spelling in accepted:
                found[spelling] = params[name]
                break
    return found


def _method(cache, name):
    for spelling in _METHODS[name]:
        if callable(getattr(cache, spelling, None)):
            return getattr(cache, spelling)
    raise AttributeError(f"{type(cache).__name__} has no method `{name}`")
