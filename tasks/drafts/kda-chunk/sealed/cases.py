"""Stress cases of ``kda-chunk``: inputs rescaled as by the public deck, the domain of k, g, beta.

The recurrence multiplies what the state holds along a key by 1 - beta |k|^2, and each channel by
exp(g). Keys of length 1, beta up to 1 and log-decays of a chunk that sum to between -40 and 5 are
what the prompt promises; within that they are pushed to where a kernel may take a shortcut: no
decay, strong decay, channels and tokens that differ, keys that repeat, beta of 0 and 1, and values
that have to be remembered from the first chunk on. On a GPU the rescaled inputs come in two scored
sizes too.
"""

import numpy as np

from tasks.case import Case
from tasks.rawfloats import decoded, encoded

STRESS = ((0.01, 5e-4, 5e-2), (2.0, 5e-2, 5e-2))  # factor of q, k, v, atol, rtol: the public deck's
SMALL = ({"B": 2, "T": 128, "H": 1}, {"B": 1, "T": 192, "H": 2})
SCORED = ({"B": 2, "T": 1024, "H": 8}, {"B": 1, "T": 2048, "H": 4})
DOMAIN = {"B": 1, "T": 192, "H": 1}
RAW = ("q", "k", "v", "beta")
HARDER = {"repeated keys": 0.025, "close keys": 0.025}
"""Their own gates: all roundings to bfloat16 come to 0.0076 and 0.0085 there, not to 0.0042."""


def cases(reference, seed, tier, device):
    """All cases; ``full`` has those of the domain twice."""
    number = 0
    for size in (*SMALL, *(SCORED if device == "cuda" else ())):
        for factor, atol, rtol in STRESS:
            number += 1
            params, call, said = _drawn(reference, size, seed, number)
            for name in "qkv":
                call[name] *= np.float32(factor)
            name = f"scale {factor:g}, {size['B']}x{size['T']}x{size['H']}"
            yield _case(reference, name, "stress:scale", (params, call, said), device, atol, rtol)
    for repeat in range(2 if tier == "full" else 1):
        for name, change in _CHANGES.items():
            number += 1
            size = {**DOMAIN, **_SIZES.get(name, {})}
            params, call, said = _drawn(reference, size, seed, number)
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
            change(call, rng)
            title = f"{name}, {repeat}" if repeat else name
            ratio = HARDER.get(name)
            yield _case(
                reference, title, "stress:domain", (params, call, said), device, ratio=ratio
            )


def _drawn(reference, size, seed, number):
    """The task's own draw, as float32 values, and its seed."""
    full = {**size, "K": 128, "V": 128, "chunk": 64, "dtype": "bfloat16"}
    made = reference.make_inputs(full, (seed + number) % (1 << 63))
    call = {
        name: decoded("bfloat16", value) if name in RAW else value
        for name, value in made["calls"][0].items()
    }
    return made["params"], call, f"{seed}/{number}"


def _case(reference, name, group, drawn, device, atol=None, rtol=None, ratio=None):
    params, values, seed = drawn
    call = {
        name: encoded("bfloat16", value) if name in RAW else value.astype(np.float32)
        for name, value in values.items()
    }
    expected = _expected(reference, params, call, device)
    return Case(name, group, seed, params, [call], expected, atol=atol, rtol=rtol, rms_ratio=ratio)


def _expected(reference, params, call, device):
    """By the reference, on the device that there is."""
    if device == "cpu":
        return reference.reference(params, [call])
    import torch  # noqa: PLC0415 - only where there is a GPU

    placed = {name: torch.from_numpy(value).to(device) for name, value in call.items()}
    found = reference.reference(params, [placed])
    return [{name: value.cpu().numpy() for name, value in leaves.items()} for leaves in found]


# --- the domain of k, g and beta: what a change does to (B, T, H, D) arrays, in place -------------


def _unit(k):
    k /= np.maximum(np.sqrt((k**2).sum(axis=-1, keepdims=True)), 1e-6)


def _no_decay(call, _rng):
    call["g"][...] = 0
    _unit(call["k"])


def _strong_decay(call, _rng):
    call["g"] = np.minimum(call["g"] - 0.4, 0)


def _channels_apart(call, rng):
    """Each channel has a rate of its own, from none to strong."""
    rates = rng.uniform(0, 0.5, call["g"].shape[-1]).astype(np.float32)
    rates[rng.permutation(len(rates))[:40]] = 0
    call["g"][...] = -rates


def _tokens_apart(call, rng):
    """Most tokens keep everything, one in sixteen forgets nearly all of some channels."""
    forgets = rng.random(call["g"].shape[:3]) < 1 / 16
    channels = rng.random(call["g"].shape) < 0.5
    call["g"][...] = np.where(forgets[..., None] & channels, -3.0, 0.0)


def _growth(call, _rng):
    call["g"][...] = np.abs(call["g"]) * 0.2
    _unit(call["k"])


def _never_written(call, _rng):
    call["beta"][:, ::3] = 0


def _overwritten(call, _rng):
    call["beta"][...] = 1
    _unit(call["k"])


def _beta_one_or_none(call, rng):
    call["beta"][...] = rng.random(call["beta"].shape) < 0.5


def _repeated_keys(call, rng):
    """Four keys of length 1 in all: each token corrects what an earlier one of its key wrote."""
    k = call["k"]
    _unit(k)
    k[...] = k[:, rng.integers(0, 4, k.shape[1])]
    call["beta"] = 0.5 + 0.5 * call["beta"]


def _close_keys(call, _rng):
    """Keys that share most of their direction."""
    k = call["k"]
    k[...] = k[:, :1] + 0.3 * k
    _unit(k)


def _keys_asked_for(call, _rng):
    """Each query is the key of an earlier token of another chunk, which it has to find."""
    _unit(call["k"])
    call["q"][...] = np.roll(call["k"], 70, axis=1)
    call["g"] *= 0.1


def _zero_keys(call, rng):
    call["k"][rng.random(call["k"].shape[:3]) < 0.5] = 0


def _keys_of_all_sizes(call, rng):
    _unit(call["k"])
    call["k"] *= 10.0 ** rng.uniform(-3, 0, (*call["k"].shape[:3], 1)).astype(np.float32)


def _remembered(call, _rng):
    """Values in the first 32 tokens only, and a slow decay: later outputs are all memory."""
    call["v"][:, 32:] = 0
    call["g"] = np.minimum(0.1 * call["g"], 0)


def _heads_apart(call, _rng):
    """Heads and sequences of very different sizes."""
    sizes = 10.0 ** -np.arange(call["v"].shape[0] * call["v"].shape[2], dtype=np.float32)
    call["v"] *= sizes.reshape(call["v"].shape[0], 1, call["v"].shape[2], 1)


_CHANGES = {
    "no decay": _no_decay,
    "strong decay": _strong_decay,
    "channels apart": _channels_apart,
    "tokens apart": _tokens_apart,
    "growth": _growth,
    "every third never written": _never_written,
    "overwritten": _overwritten,
    "beta one or none": _beta_one_or_none,
    "repeated keys": _repeated_keys,
    "close keys": _close_keys,
    "keys asked for": _keys_asked_for,
    "zero keys": _zero_keys,
    "keys of all sizes": _keys_of_all_sizes,
    "remembered": _remembered,
    "long": lambda call, rng: None,
    "heads apart": _heads_apart,
}
_SIZES = {
    "long": {"T": 448},
    "heads apart": {"B": 2, "T": 64, "H": 2},
    "remembered": {"T": 256},
}
