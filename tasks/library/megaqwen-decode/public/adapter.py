"""From the canonical call to ``prefill`` and ``decode_steps``: one call decodes some steps.

The caches are dealt in the reference's layout before any clock runs, and each call begins at the
same position again: it overwrites the rows of the call before. Where they go is asked of the
submission: whatever its own ``prefill`` returns as ``k`` and ``v`` is filled, and handed to
``decode_steps``. That may be one tensor a layer, (8, max_seq, 128), all of them in one tensor, or
the same with dims in another order, heads and their elements merged, rows to spare, another dtype.

A layout that this does not see through can be filled and read by the submission's own
``import_caches(model, k, v, length)`` -> (k, v), with lists of (8, length, 128), and
``cache_rows(model, k, v, start, n)`` -> two tensors (layers, 8, n, 128). Both are optional.

Where no caches are dealt (``prefill_seed``), the decode begins from the submission's own prefill.
"""

from types import SimpleNamespace

import torch

KV_HEADS, HEAD = 8, 128
LOOK = 1  # steps of the prefill that shows the layout


def setup(entries, params):
    """The model with its state dict, and the caches as the submission keeps them."""
    weights = dict(params["weights"])
    dealt = [weights.pop(name) for name in ("state.k", "state.v") if name in weights]
    layers, room = params["init"]
    model = entries.Model(layers, room)
    model = model.to(next(iter(weights.values())).device).eval()
    model.load_state_dict(weights, strict=True)
    state = SimpleNamespace(model=model, start=params["start"], steps=params["steps"])
    with torch.no_grad():
        seed = params["prefill_seed"]
        begun = entries.prefill(model, LOOK if seed is None else state.start, seed or 0)
        state.hidden, state.k, state.v = begun[0], begun[1], begun[2]
        state.form = state.hidden.shape
        if dealt:
            state.hidden = None
            _fill(entries, state, dealt, layers, room)
    state.layers, state.room = layers, room
    state.places = _places(state.k, state.v, layers, room)
    return state


def run(entries, state, inputs):
    """One decode: the last hidden, and the rows that the caches got."""
    hidden = inputs["hidden"].view(state.form) if state.hidden is None else state.hidden.clone()
    seed = int(inputs["seed"])
    k, v = state.k, state.v
    with torch.no_grad():
        result = entries.decode_steps(state.model, hidden, k, v, state.start, state.steps, seed)
        places = state.places
        if isinstance(result, (tuple, list)):
            if len(result) > 2 and (result[1] is not k or result[2] is not v):
                k, v = result[1], result[2]
                places = _places(k, v, state.layers, state.room)
            result = result[0]
        rows = _rows(entries, state, k, v, places)
    return {"hidden": result.reshape(-1), "k_rows": rows[0], "v_rows": rows[1]}


def _fill(entries, state, dealt, layers, room):
    """Put the dealt caches where the submission has its own."""
    places = _places(state.k, state.v, layers, room)
    if places is not None:
        for caches, given in zip(places, dealt, strict=True):
            for cache, one in zip(caches, given, strict=True):
                cache[:, : state.start].copy_(one)
    elif entries.import_caches is not None:
        lists = [list(given) for given in dealt]
        state.k, state.v = entries.import_caches(state.model, *lists, state.start)
    else:
        raise NotImplementedError(_UNKNOWN)


def _rows(entries, state, k, v, places):
    begin, end = state.start, state.start + state.steps
    if places is not None:
        return [
            torch.stack([cache[:, begin:end] for cache in caches]).to(torch.bfloat16)
            for caches in places
        ]
    if entries.cache_rows is not None:
        return entries.cache_rows(state.model, k, v, begin, state.steps)
    raise NotImplementedError(_UNKNOWN)


_UNKNOWN = (
    "prefill returns caches of a layout of its own: offer import_caches(model, k, v, length) and "
    "cache_rows(model, k, v, start, n) beside it"
)


def _places(k, v, layers, room):
    """Views (8, rows, 128) of the caches of each layer, for k and for v; None for other layouts."""
    found = _packed(k, layers, room) if v is None or v is k else None
    if found is None:
        found = [_layers(cache, layers, room) for cache in (k, v)]
    return None if any(caches is None for caches in found) else found


def _packed(cache, layers, room):
    """Of caches that hold k and v: one dim of two tells them apart, outside or inside of layers."""
    if isinstance(cache, torch.Tensor):
        dims = [dim for dim, size in enumerate(cache.shape) if size == 2]
        parts = cache.unbind(dims[0]) if dims and cache.dim() > 3 else None
    elif not isinstance(cache, (tuple, list)):
        parts = None
    elif len(cache) == layers:
        pairs = [[one[0], one[1]] for one in cache if len(one) == 2]
        parts = list(zip(*pairs, strict=True)) if len(pairs) == layers else None
    else:
        parts = cache if len(cache) == 2 else None
    return [None] if parts is None else [_layers(part, layers, room) for part in parts]


def _layers(cache, layers, room):
    if isinstance(cache, torch.Tensor):
        cache = _split(cache, layers)
    elif isinstance(cache, dict):
        cache = [cache[name] for name in sorted(cache)]
    if not isinstance(cache, (tuple, list)) or len(cache) != layers:
        return None
    views = [_view(one, room) if isinstance(one, torch.Tensor) else None for one in cache]
    return None if any(view is None for view in views) else views


def _split(cache, layers):
    """A tensor by its layers: the first dim of that size, where it has a dim for them."""
    while cache.dim() > 4 and 1 in cache.shape:
        cache = cache.squeeze(cache.shape.index(1))
    dims = [dim for dim, size in enumerate(cache.shape) if size == layers]
    if cache.dim() in (3, 4) and dims:
        return cache.unbind(dims[0])
    return [cache] if layers == 1 else None


def _view(one, room):
    """One layer's cache as (8, rows, 128)."""
    while one.dim() > 3 and 1 in one.shape:
        one = one.squeeze(one.shape.index(1))
    if one.dim() == 2 and one.shape[1] == KV_HEADS * HEAD:
        one = one.unflatten(1, (KV_HEADS, HEAD))
    if one.dim() != 3:
        return None
    orders = ((0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0))
    for order in orders:
        view = one.permute(order)
        if view.shape[0] == KV_HEADS and view.shape[1] >= room and view.shape[2] == HEAD:
            return view
    return None
