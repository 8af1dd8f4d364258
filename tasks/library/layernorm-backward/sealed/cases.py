"""Stress and property cases of ``layernorm-backward``.

Every draw comes from a counter-based generator of (seed, number of the case). The tolerance of a
case follows from its data: ``max(base, 8 * eps * |mean| / sqrt(var + eps))`` of the worst row,
relative to the *natural scale* of each output, which is what the output would measure if no terms
cancelled (``dx`` of D = 1 is all cancellation). Outputs of very different scale, such as ``y`` and
``dx`` when x is of scale 1e6, are compared in cases of their own, because a case has one atol.
"""

from dataclasses import dataclass, replace

import numpy as np

from tasks.case import Case

LEAVES = ("y", "dx", "dgamma", "dbeta")
BASE = {"float64": 1e-9, "float32": 1e-5}
ALIKE = 30.0  # scales within this factor share a case
EPS = 1e-5
BOTH = ("float64", "float32")


@dataclass(frozen=True)
class Draw:
    """The calls of one case, before their expected outputs."""

    name: str
    item: str
    group: str
    calls: list
    eps: float = EPS


def cases(reference, seed, tier, device):
    """All cases; ``full`` repeats the random ones more often than ``quick``."""
    for number, (make, options) in enumerate(_plan(3 if tier == "full" else 1)):
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
        draw = make(rng, **options)
        named = replace(draw, name=f"{draw.name}-{number}")
        yield from _comparable(reference, named, f"{seed}/{number}")


def _plan(repeats):
    for dtype in BOTH:
        yield from [(_random, {"dtype": dtype})] * (4 * repeats)
        yield from ((_edge, {"dtype": dtype, "shape": shape}) for shape in _EDGES)
        yield from ((_offset, {"dtype": dtype, "offset": m, "std": s}) for m, s in _OFFSETS[dtype])
        yield from ((_scale, {"dtype": dtype, "scale": s, "eps": e}) for s, e in _SCALES)
        yield from ((_view, {"dtype": dtype, "view": view}) for view in _VIEWS)
        yield from ((_gamma, {"dtype": dtype, "signs": signs}) for signs in _GAMMAS)
        yield from ((_rows, {"dtype": dtype, "kind": kind}) for kind in _ROWS)
        yield _repeated, {"dtype": dtype}


_EDGES = ((3, 4, 1), (1, 1, 1), (1, 1, 65), (2, 3, 2), (1, 2100, 5), (1, 2, 20011))
# Ratios of 1e5 leave an honest two-pass variance a factor of ten inside 1e-9.
_OFFSETS = {
    "float64": ((1e4, 1.0), (1e6, 10.0), (-1e6, 10.0), (1e8, 1e3), (1e8, 1.0)),
    "float32": ((1e4, 1.0), (1e4, 10.0), (-1e6, 1e3), (1e8, 1e4)),
}
_SCALES = ((1e-6, EPS), (1e-6, 1e-12), (1e-3, EPS), (1e3, EPS), (1e6, EPS))
_VIEWS = {
    "transposed": lambda a: np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2),
    "every-second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
    "fortran": np.asfortranarray,
}
_GAMMAS = {
    "some-zero": lambda g: g * (np.arange(g.size) % 3 != 0),
    "all-zero": np.zeros_like,
    "negative": lambda g: -np.abs(g),
    "mixed": lambda g: g * np.where(np.arange(g.size) % 2, -1, 1),
}


def _inputs(rng, shape):
    rows = shape[0] * shape[1]
    return {
        "x": rng.standard_normal(shape),
        "gamma": 1 + 0.5 * rng.standard_normal(shape[2]),
        "beta": 0.5 * rng.standard_normal(shape[2]),
        "dy": rng.standard_normal(shape) / np.sqrt(rows),
    }


def _cast(inputs, dtype):
    return {name: value.astype(dtype, order="K") for name, value in inputs.items()}


def _some_shape(rng):
    return (
        int(rng.integers(1, 5)),
        int(rng.integers(1, 18)),
        int(rng.choice([3, 4, 7, 16, 31, 64, 100, 127, 257, 1024])),
    )


def _random(rng, dtype):
    inputs = _inputs(rng, _some_shape(rng))
    item = "gradients_fp64" if dtype == "float64" else "gradients_fp32"
    eps = float(rng.choice([1e-5, 1e-6, 1e-3]))
    return Draw(f"random-{dtype}", item, "property", [_cast(inputs, dtype)], eps)


def _edge(rng, dtype, shape):
    inputs = _inputs(rng, shape)
    name = "edge-" + "x".join(map(str, shape)) + f"-{dtype}"
    return Draw(name, "edge_sizes", "property", [_cast(inputs, dtype)])


def _offset(rng, dtype, offset, std):
    inputs = _inputs(rng, (2, 6, 96))
    inputs["x"] = offset + std * inputs["x"]
    name = f"offset{offset:.0e}-std{std:.0e}-{dtype}"
    return Draw(name, "offset", "stress:offset", [_cast(inputs, dtype)])


def _scale(rng, dtype, scale, eps):
    inputs = _inputs(rng, (2, 5, 80))
    inputs["x"] *= scale
    name = f"scale{scale:.0e}-eps{eps:.0e}-{dtype}"
    return Draw(name, "scale", "stress:scale", [_cast(inputs, dtype)], eps)


def _view(rng, dtype, view):
    inputs = _inputs(rng, (3, 5, 34))
    call = _cast(inputs, dtype)
    call |= {name: _VIEWS[view](call[name]) for name in ("x", "dy")}
    return Draw(f"view-{view}-{dtype}", "noncontiguous", "property", [call])


def _gamma(rng, dtype, signs):
    inputs = _inputs(rng, (2, 7, 48))
    inputs["gamma"] = _GAMMAS[signs](inputs["gamma"])
    return Draw(f"gamma-{signs}-{dtype}", "gamma_signs", "property", [_cast(inputs, dtype)])


def _zero(x, _rng):
    return np.zeros_like(x)


def _constant(x, rng):
    return np.broadcast_to(rng.uniform(-3, 3, (*x.shape[:2], 1)), x.shape).copy()


def _partly_constant(x, rng):
    return np.where(np.arange(x.shape[1])[:, None] % 2, x, _constant(x, rng))


def _outlier(x, rng):
    x[:, :, rng.integers(x.shape[2] // 2, x.shape[2])] += 40
    return x


def _mixed_magnitudes(x, rng):
    return x * 10.0 ** rng.integers(-2, 3, (*x.shape[:2], 1))


def _clusters(x, _rng):
    return np.sign(x) * 3 + 0.01 * x


def _all_negative(x, _rng):
    return -1 - np.abs(x)


_ROWS = {
    "zero": (_zero, "zero_input"),
    "constant": (_constant, "constant_rows"),
    "partly-constant": (_partly_constant, "constant_rows"),
    "outlier": (_outlier, "value_patterns"),
    "mixed-magnitudes": (_mixed_magnitudes, "value_patterns"),
    "clusters": (_clusters, "value_patterns"),
    "negative": (_all_negative, "value_patterns"),
}


def _rows(rng, dtype, kind):
    pattern, item = _ROWS[kind]
    inputs = _inputs(rng, (2, 6, 72))
    inputs["x"] = pattern(inputs["x"], rng)
    return Draw(f"rows-{kind}-{dtype}", item, "property", [_cast(inputs, dtype)])


def _repeated(rng, dtype):
    """A, B, A': equal shapes; A' differs from A in one element far from the front."""
    first, second = (_cast(_inputs(rng, (2, 9, 130)), dtype) for _ in range(2))
    third = {name: value.copy() for name, value in first.items()}
    third["x"][1, 7, 101] += 1.0
    item = "gradients_fp64" if dtype == "float64" else "gradients_fp32"
    return Draw(f"repeated-{dtype}", item, "property", [first, second, third])


def _comparable(reference, draw, seed):
    """One case for each group of outputs that one atol suits."""
    params = {"eps": draw.eps}
    expected = reference.reference(params, draw.calls)
    tolerance = max(_tolerance(call, draw.eps) for call in draw.calls)
    scale = _worst(_natural_scales(call, draw.eps) for call in draw.calls)
    ratio = {leaf: max(_ratio(scale[leaf], output[leaf]) for output in expected) for leaf in LEAVES}
    for leaves in _alike(scale, ratio):
        suffix = "" if len(leaves) == len(LEAVES) else "/" + "+".join(leaves)
        yield Case(
            name=draw.name + suffix,
            group=draw.group,
            seed=seed,
            params=params,
            calls=draw.calls,
            expected=expected,
            item=draw.item,
            atol=tolerance * max(scale[leaf] for leaf in leaves),
            rtol=tolerance,
            rms_ratio=tolerance * max(ratio[leaf] for leaf in leaves),
            relevant=leaves,
        )


def _tolerance(call, eps):
    x, dtype = call["x"].astype(np.float64), call["x"].dtype
    sigma = np.sqrt(_centred(x).var(axis=-1) + eps)
    condition = np.max(np.abs(x.mean(axis=-1)) / sigma)
    return max(BASE[str(dtype)], 8 * float(np.finfo(dtype).eps) * float(condition))


def _centred(x):
    shifted = x - x[..., :1]
    return shifted - shifted.mean(axis=-1, keepdims=True)


def _natural_scales(call, eps):
    x, gamma, beta, dy = (call[k].astype(np.float64) for k in ("x", "gamma", "beta", "dy"))
    centred = _centred(x)
    rstd = 1 / np.sqrt(centred.var(axis=-1, keepdims=True) + eps)
    xhat = centred * rstd
    return {
        "y": _rms(np.hypot(gamma * xhat, beta)),
        "dx": _rms(rstd * dy * gamma) or 1.0,
        "dgamma": _rms(np.sqrt(np.sum((dy * xhat) ** 2, axis=(0, 1)))) or _rms(dy),
        "dbeta": _rms(np.sqrt(np.sum(dy**2, axis=(0, 1)))),
    }


def _worst(scales):
    rows = list(scales)
    return {leaf: max(row[leaf] for row in rows) for leaf in LEAVES}


def _ratio(scale, output):
    """How much the gate is widened for cancellation; unbounded where the output is exactly 0."""
    rms = _rms(output)
    return max(1.0, scale / rms) if rms else np.inf


def _alike(scale, ratio):
    """Groups of leaves whose scales, and whose gates, are within a factor of ALIKE."""
    groups = []
    for leaf in sorted(LEAVES, key=lambda leaf: (ratio[leaf] >= ALIKE, scale[leaf])):
        first = groups[-1][0] if groups else None
        fits = (
            first is not None
            and scale[leaf] <= ALIKE * scale[first]
            and (ratio[leaf] >= ALIKE) == (ratio[first] >= ALIKE)
            and (ratio[leaf] < ALIKE or ratio[leaf] == ratio[first])
        )
        if fits:
            groups[-1].append(leaf)
        else:
            groups.append([leaf])
    return [tuple(sorted(group, key=LEAVES.index)) for group in groups]


def _rms(array):
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
