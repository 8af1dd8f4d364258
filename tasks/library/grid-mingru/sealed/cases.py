"""Cases of ``grid-mingru``: other policies than the forager, few environments, scaled inputs.

A case pairs weights with a seed, so near ties can be kept out by looking: the seed is the first of
those drawn at which no step of any environment has a gap of less than ``CLEAR`` between its two
largest logits, in float64 and relative to them. (Timed calls pair any weights with any seed; there
the weights themselves keep the choices apart.)
"""

import numpy as np
import torch

from tasks.case import Case

CLEAR = 2e-4
TRIES = 200
SCALES = ((0.01, 1e-6, 1e-4), (8.0, 0.1, 1e-4))  # factor, atol, rtol: the public deck's
UNSET = 4e-5
"""The gate for other policies and inputs than those of a forager, whose precision ladder it does
not have. Measured there: float32 3e-8 to 7e-7, three bfloat16 products 3e-7 to 1.9e-5, one TF32
product 1.6e-5 to 1.2e-3, and at least 2.5e-4 of the states."""


def cases(reference, seed, tier, device):
    """All cases; on a GPU some of a scored size."""
    rng = np.random.default_rng(seed)
    yield from _scaled_steps(reference, rng)
    for name, size, weights, how in _policies(reference, rng, device):
        yield _rollout(reference, rng, name, size, weights, **how)
    for own in (0, 1, (1 << 31) - 1):
        weights = _forager(reference, rng)
        yield _rollout(reference, rng, f"seed {own}", (19, 5), weights, own=own)


def _policies(reference, rng, device):
    """Name, size, weights and bounds of whole rollouts."""
    for factor, atol, rtol in SCALES:
        weights = _random(reference, rng, 1.5)
        weights["w_enc"] *= np.float32(factor)
        how = {"group": "stress:scale", "atol": atol, "rtol": rtol, "rms_ratio": UNSET}
        yield f"observations scaled by {factor:g}", (21, 7), weights, how
    yield "public initialisation", (33, 7), _random(reference, rng, 0.8), {"rms_ratio": UNSET}
    yield "random weights, long", (3, 40), _random(reference, rng, 1.5), {"rms_ratio": UNSET}
    for action in range(4):
        weights = {name: value * 0 for name, value in _random(reference, rng, 1.0).items()}
        weights["b_a"][action] = 1
        yield f"always action {action}", (40, 12), weights, {}
    for count in (1, 2, 3, 5):
        yield f"{count} environments", (count, 40), _forager(reference, rng), {}
    yield "one step", (131, 1), _forager(reference, rng), {}
    yield "long", (9, 70), _forager(reference, rng), {}
    yield "value head unused", (16, 5), _without_value(_forager(reference, rng)), {}
    if device == "cuda":
        yield "as many as are timed", (4096, 32), _forager(reference, rng), {}
        yield "ragged", (4099, 17), _forager(reference, rng), {}
        yield "more than one wave", (40003, 3), _forager(reference, rng), {}


def _forager(reference, rng):
    made = reference.make_inputs({"num_envs": 1, "horizon": 1}, int(rng.integers(1 << 62)))
    return {name: value.copy() for name, value in made["params"]["weights"].items()}


def _random(reference, rng, gain):
    """Weights without any structure; ``gain`` of a layer."""
    found = {}
    for name, shape in reference.module.SHAPES.items():
        scale = 1.0 if len(shape) < 2 or shape[-1] == 4 else gain / shape[-1] ** 0.5
        found[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return found


def _without_value(weights):
    weights["w_v"][:], weights["b_v"][:] = 1e30, -1e30
    return weights


def _rollout(reference, rng, name, size, weights, *, own=None, group="property", **how):
    params = {"init": [], "num_envs": size[0], "horizon": size[1], "weights": weights}
    typed = {key: torch.from_numpy(value).double() for key, value in weights.items()}
    drawn = [own] if own is not None else rng.integers(1 << 31, size=TRIES).tolist()
    chosen = next((seed for seed in drawn if _is_clear(reference, size, seed, typed)), drawn[0])
    calls = [{"seed": np.array([chosen])}]
    expected = reference.reference(params, calls)
    return Case(name, group, str(chosen), params, calls, expected, **how)


def _is_clear(reference, size, seed, weights):
    module = reference.module
    _, _, logits, gap = module.rollout(*size, seed, module.SimpleNamespace(**weights))
    return bool(gap > CLEAR * logits.square().mean().sqrt())


def _scaled_steps(reference, rng):
    """One step of the policy from observations and a state of other magnitudes."""
    for kind, weights in (
        ("forager", _forager(reference, rng)),
        ("random weights", _random(reference, rng, 1.5)),
    ):
        for factor, atol, rtol in SCALES:
            obs = (factor * rng.uniform(-1, 1, (45, 4))).astype(np.float32)
            state = (factor * rng.uniform(-1, 1, (3, 45, 256))).astype(np.float32)
            params = {"init": [], "num_envs": 45, "horizon": 1, "weights": weights}
            calls = [{"obs": obs, "state": state}]
            expected = reference.reference(params, calls)
            yield Case(
                f"one step, {kind}, scaled by {factor:g}",
                "stress:step",
                "",
                params,
                calls,
                [{name: expected[0][name] for name in ("1", "2")}],
                atol=atol,
                rtol=rtol,
                rms_ratio=UNSET,
                relevant=("1", "2"),
                requires=("policy_forward",),
            )
