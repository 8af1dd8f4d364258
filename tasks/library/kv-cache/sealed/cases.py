"""Stress and generated property cases of the KV cache.

Every case draws from a generator of its own, seeded by the plan's seed and the case's name, so that
one case can be replayed alone.
"""

import hashlib

import numpy as np

from tasks.case import Case

_PROPERTY_RUNS = {"quick": 3, "full": 5}  # of each random family; fixed boundary cases come on top
_ABSOLUTE = {"float32": 1e-5, "float64": 1e-10}


def cases(reference, seed, tier, device):
    """All cases of one plan, in a fixed order."""
    runs = _PROPERTY_RUNS[tier]
    plan = _Plan(reference, seed)
    yield from _random_equality(plan, runs)
    yield from _ragged(plan, runs)
    yield from _causal(plan, runs)
    yield from _after_reset(plan, runs)
    yield from _boundaries(plan)
    yield from _growth(plan, runs)
    yield from _stress(plan)
    yield from _claimed(plan, runs)


class _Plan:
    """Draws inputs and asks the reference for the outputs."""

    def __init__(self, reference, seed):
        self.reference, self.seed = reference, seed

    def rng(self, name):
        digest = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()
        return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))

    def case(self, name, item, params, calls, **options):
        params = {"kv_heads": params["heads"], **params, "tokens": _tokens(calls)}
        options.setdefault("group", "property")
        expected = self.reference.reference(params, calls)
        seed = f"{self.seed}:{name}"
        return Case(
            name=name,
            item=item,
            seed=seed,
            params=params,
            calls=calls,
            expected=expected,
            **options,
        )


def _tokens(calls):
    return sum(1 + len(call.get("context_active", ())) for call in calls)


def _params(rng, dtype, **fixed):
    """A small random configuration: head sizes odd and even, one row to five."""
    params = {
        "layers": int(rng.integers(1, 4)),
        "heads": int(rng.choice([1, 2, 3, 4, 8])),
        "head_dim": int(rng.choice([1, 3, 8, 16, 33, 64])),
        "batch": int(rng.integers(1, 6)),
        "dtype": dtype,
        "order": str(rng.choice(["layerwise", "append_first"])),
    }
    return {**params, **fixed}


def _calls(rng, params, steps, *, activity=0.7, resets=0.0, padding=np.nan, context=0):
    """``steps`` calls of N(0,1) data; ``padding`` fills the rows that are not active."""
    dtype, batch = params["dtype"], params["batch"]
    kv_size = (params["layers"], batch, params.get("kv_heads", params["heads"]), params["head_dim"])
    q_size = (params["layers"], batch, params["heads"], params["head_dim"])
    calls = []
    for step in range(steps):
        call = {
            "q": rng.standard_normal(q_size).astype(dtype),
            "k": rng.standard_normal(kv_size).astype(dtype),
            "v": rng.standard_normal(kv_size).astype(dtype),
            "active": rng.random(batch) < activity,
            "reset": rng.random(batch) < (resets if step else 0.0),
        }
        if context and step == 0:
            call["context_k"] = rng.standard_normal((context, *kv_size)).astype(dtype)
            call["context_v"] = rng.standard_normal((context, *kv_size)).astype(dtype)
            call["context_active"] = rng.random((context, batch)) < activity
            for name in ("context_k", "context_v"):
                _pad(call[name], call["context_active"], padding)
        for name in ("k", "v"):
            _pad(call[name].swapaxes(0, 1), call["active"], padding)
        calls.append(call)
    return calls


def _pad(array, active, padding):
    """Fill what is not active; for a context (tokens, layers, batch, ...) by token and row."""
    if active.ndim == 2:
        array.swapaxes(1, 2)[~active] = padding
    else:
        array[~active] = padding


def _random_equality(plan, runs):
    for dtype in ("float32", "float64"):
        for run in range(runs):
            name = f"random-{dtype}-{run}"
            rng = plan.rng(name)
            params = _params(rng, dtype)
            calls = _calls(rng, params, int(rng.integers(8, 33)), resets=0.05, padding=0.0)
            yield plan.case(name, f"equal-{dtype}", params, calls)


def _ragged(plan, runs):
    """Lengths far apart; padding that would be seen if it were read."""
    for run in range(runs):
        for what, padding in (("nan", np.nan), ("huge", 1e30), ("inf", np.inf)):
            name = f"ragged-{what}-{run}"
            rng = plan.rng(name)
            dtype = str(rng.choice(["float32", "float64"]))
            params = _params(rng, dtype, batch=int(rng.integers(2, 7)))
            calls = _calls(rng, params, 24, padding=padding)
            chance = rng.random(params["batch"])
            chance[rng.integers(params["batch"])] = 0.04  # one row that hardly ever moves
            for call in calls:
                _set_active(call, rng.random(params["batch"]) < chance, padding)
            yield plan.case(name, "ragged", params, calls)


def _set_active(call, active, padding):
    call["active"] = active
    for name in ("k", "v"):
        array = call[name].swapaxes(0, 1)
        array[np.isnan(array) | (np.abs(array) > 1e6)] = 0.5  # what was padding becomes a token
        array[~active] = padding


def _causal(plan, runs):
    """One history with two futures: what comes before must not know which one follows."""
    for run in range(runs):
        for future in ("plain", "spiked"):
            rng = plan.rng(f"causal-{run}")  # the same history for both
            params = _params(rng, "float64", heads=2)
            calls = _calls(rng, params, 16, activity=1.0)
            if future == "spiked":
                for call in calls[8:]:
                    call["k"] *= 50
                    call["v"] *= 1e6
            name = f"causal-{run}-{future}"
            yield plan.case(
                name, "causality", params, calls, atol=1e-4 if future == "spiked" else None
            )


def _after_reset(plan, runs):
    for run in range(runs):
        name = f"reset-{run}"
        rng = plan.rng(name)
        params = _params(rng, "float32", batch=int(rng.integers(1, 5)))
        yield plan.case(name, "reset", params, _calls(rng, params, 40, resets=0.15))
    yield _reset_of_nan(plan)
    yield _reset_to_nothing(plan)


def _reset_of_nan(plan):
    """A sequence of NaN ends; the row is used again. Its own NaN outputs are right until then."""
    rng = plan.rng("reset-nan")
    params = _params(rng, "float32", batch=3)
    calls = _calls(rng, params, 14, activity=1.0)
    for call in calls[2:7]:
        call["k"][:, 1], call["v"][:, 1] = np.nan, np.nan
    calls[7]["reset"][1] = True
    return plan.case("reset-nan", "reset", params, calls)


def _reset_to_nothing(plan):
    """All rows emptied while none is active: zeros, then a new start."""
    rng = plan.rng("reset-all")
    params = _params(rng, "float64", batch=3)
    calls = _calls(rng, params, 10, activity=1.0)
    calls[5]["reset"][:] = True
    _set_active(calls[5], np.zeros(3, bool), np.nan)
    return plan.case("reset-all", "reset", params, calls)


def _boundaries(plan):
    base = {"layers": 2, "heads": 2, "head_dim": 8, "batch": 2}
    sizes = {
        "one-row": {"batch": 1},
        "head-size-1": {"head_dim": 1},
        "head-size-odd": {"head_dim": 37},
        "one-head": {"heads": 1},
        "everything-1": {"layers": 1, "heads": 1, "head_dim": 1, "batch": 1},
        "wide-batch": {"batch": 17, "heads": 1},
    }
    for what, changed in sizes.items():
        for dtype in ("float32", "float64"):
            name = f"boundary-{what}-{dtype}"
            params = {**base, **changed, "dtype": dtype}
            yield plan.case(name, "boundaries", params, _calls(plan.rng(name), params, 9))
    for what, shape_values in _VALUES.items():
        name = f"boundary-{what}"
        rng = plan.rng(name)
        params = {**base, "dtype": "float32"}
        calls = _calls(rng, params, 9, activity=1.0)
        shape_values(calls)
        yield plan.case(name, "boundaries", params, calls)


def _single_token(calls):
    del calls[1:]


def _never_active(calls):
    for call in calls:
        _set_active(call, np.array([True, False]), np.nan)


def _late_start(calls):
    for call in calls[:4]:
        _set_active(call, np.array([False, False]), np.nan)


def _constant(calls):
    for call in calls:
        call["k"][...], call["v"][...] = 0.25, -3.0


def _negative_zero(calls):
    for call in calls:
        call["q"][...], call["k"][..., ::2] = -0.0, -0.0


def _one_question(calls):
    """The same query again without a new token: attending changes nothing."""
    for call in calls[3:]:
        call["q"][...] = calls[2]["q"]
        _set_active(call, np.array([False, False]), np.nan)


_VALUES = {
    "single-token": _single_token,
    "never-active": _never_active,
    "late-start": _late_start,
    "constant": _constant,
    "negative-zero": _negative_zero,
    "attend-again": _one_question,
}


def _growth(plan, runs):
    """Lengths on either side of the block sizes that caches tend to be built from."""
    lengths = [15, 31, 63, 127, 255, 511]
    for run in range(runs):
        name = f"growth-{run}"
        rng = plan.rng(name)
        context = lengths[-1 - run % len(lengths)]
        params = _params(rng, "float32", layers=1, batch=2, head_dim=16)
        calls = _calls(rng, params, 4, activity=1.0 if run % 2 else 0.8, context=context)
        yield plan.case(name, "growth", params, calls)


def _stress(plan):
    """Magnitudes. Where keys make scores of size s, an honest fp32 result is off by about s*eps."""
    scales = {  # of q, k and v; the absolute tolerance in units of the dtype's
        "small": (1e-3, 1e-3, 1e-3, 1e-3),
        "large-values": (1, 1, 1e4, 1e4),
        "sharp": (8, 8, 1, 100),
        "tiny-values": (1, 1, 1e-6, 1e-6),
    }
    for what, (q, k, v, absolute) in scales.items():
        for dtype in ("float32", "float64"):
            name = f"stress-{what}-{dtype}"
            rng = plan.rng(name)
            params = {"layers": 2, "heads": 4, "head_dim": 64, "batch": 2, "dtype": dtype}
            calls = _calls(rng, params, 24, activity=0.9)
            for call in calls:
                call["q"] *= q
                call["k"] *= k
                call["v"] *= v
            yield plan.case(
                name,
                "magnitudes",
                params,
                calls,
                group=f"stress:{what}",
                atol=absolute * _ABSOLUTE[dtype],
                rms_ratio={"float32": 1e-4, "float64": 1e-11}[dtype] if what == "sharp" else None,
            )
    yield from (_huge_scores(plan, dtype) for dtype in ("float32", "float64"))
    yield _mixed_magnitudes(plan)


def _huge_scores(plan, dtype):
    """Scores of several thousand, of both signs: the winner takes all, if exp does not overflow."""
    name = f"stress-huge-scores-{dtype}"
    rng = plan.rng(name)
    params = {"layers": 1, "heads": 2, "head_dim": 16, "batch": 2, "dtype": dtype}
    calls = _calls(rng, params, 12, activity=1.0)
    for step, call in enumerate(calls):
        call["q"][...] = rng.choice([-64.0, 64.0], size=(1, 2, 2, 1))
        call["k"][...] = ((step * 7) % 12 - 6) * 8.0  # all different: no two scores are close
    return plan.case(name, "magnitudes", params, calls, group="stress:huge-scores")


def _mixed_magnitudes(plan):
    """Each head and row of another size; an error in a small one hides behind no large one."""
    rng = plan.rng("stress-mixed")
    params = {"layers": 1, "heads": 5, "head_dim": 32, "batch": 3, "dtype": "float64"}
    calls = _calls(rng, params, 20, activity=0.9)
    scale = 10.0 ** np.arange(-8, 7).reshape(3, 5)[..., None]
    for call in calls:
        call["v"] *= scale
    return plan.case("stress-mixed", "magnitudes", params, calls, group="stress:mixed", atol=1e-9)


def _claimed(plan, runs):
    for run in range(runs):
        for dtype in ("float32", "float64"):
            name = f"grouped-{dtype}-{run}"
            rng = plan.rng(name)
            kv_heads = int(rng.integers(1, 4))
            heads = kv_heads * int(rng.integers(1, 5))
            params = _params(rng, dtype, heads=heads, kv_heads=kv_heads, variant="grouped")
            calls = _calls(rng, params, 16, resets=0.05)
            requires = ("GroupedQueryKVCache",)
            yield plan.case(name, "grouped-queries", params, calls, requires=requires)
        yield _quantised(plan, run)


def _quantised(plan, run):
    """The bound that the prompt states; the elementwise one only stops garbage."""
    name = f"quantised-{run}"
    rng = plan.rng(name)
    params = _params(rng, "float32", head_dim=64, batch=3, variant="quantized")
    return plan.case(
        name,
        "quantised",
        params,
        _calls(rng, params, 32, activity=0.8),
        requires=("QuantizedKVCache",),
        atol=0.25,
        rtol=0.0,
        rms_ratio=0.02,
    )
