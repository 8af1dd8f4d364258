"""Stress and property cases of ``nsa``.

Scaled inputs are rounded again, and made ones may hold ties, so every query of which float32 sums
could choose another eighth block becomes zero here: then all importances are equal, exactly, and
the blocks of highest index are kept. Ties are left where blocks hold the very same keys.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tasks.case import Case
from tasks.tensors import as_array

SCALES = ((0.01, 5e-4, 5e-2), (8.0, 5e-2, 5e-2))  # factor, atol, rtol: the public deck's
SMALL = ((1, 1, 700, 64), (1, 1, 641, 128))
SCORED = ((1, 16, 4127, 64), (1, 8, 8191, 128))
EDGES = (1, 2, 63, 64, 65, 128, 511, 512, 513, 576, 577, 640)  # lengths around a change of the rule
MANY = (2, 3, 130, 64)  # small heads, so that mixed up ones show
TWINS = 4  # different blocks where blocks repeat
BLOCK, KEPT = 64, 8

Tensors = tuple[Any, Any, Any]


def cases(reference: Any, seed: int, tier: str, device: str) -> Iterator[Case]:
    """All cases; at scored sizes too where there is a GPU."""
    make = _Maker(reference.module, seed, device)
    for size in (*SMALL, *(SCORED if device == "cuda" else ())):
        for factor, atol, rtol in SCALES:
            yield make.case(f"scale {factor:g}", size, _scaled(factor), "stress:scale", atol, rtol)
        for name, change in CHANGES.items():
            yield make.case(name, size, change)
    for length in EDGES:
        yield make.case(f"{length} long", (1, 1, length, 64 if length % 2 else 128), _drawn)
    yield make.case("many heads", MANY, _drawn)


class _Maker:
    """Draws, changes what was drawn, and asks the reference."""

    def __init__(self, module: Any, seed: int, device: str) -> None:
        self._module, self._seed, self._device = module, seed, device

    def case(
        self,
        name: str,
        size: tuple[int, int, int, int],
        change: Callable[[Tensors], Tensors],
        group: str = "property",
        atol: float | None = None,
        rtol: float | None = None,
    ) -> Case:
        self._seed += 1
        shape = dict(zip("BHSD", size, strict=True))
        drawn = self._module.make_inputs(shape, self._seed, self._device)["calls"][0]
        q, k, v = (x.bfloat16() for x in change((drawn["q"], drawn["k"], drawn["v"])))
        q = q.masked_fill(self._is_open(q, k)[..., None], 0)
        call = {"q": q, "k": k, "v": v}
        (expected,) = self._module.reference({}, [call])
        weights = self._module.make_weights(shape, self._seed)
        return Case(
            f"{name}, {'x'.join(map(str, size))}",
            group,
            str(self._seed),
            {"init": [*size], "weights": _arrays(weights)},
            [_arrays(call)],
            [_arrays(expected)],
            atol=atol,
            rtol=rtol,
        )

    def _is_open(self, q: Any, k: Any) -> Any:
        """(B, H, S): close, and not by whole blocks of equal keys."""
        values = self._module.importance(q, k)
        close = self._module.too_close(q, k)
        if not close.any():
            return close
        order = values.shape[3] - 1 - values.flip(3).sort(dim=3, descending=True, stable=True)[1]
        kin = _kin(k)
        last, following = order[..., KEPT - 1], order[..., KEPT]
        heads = torch.arange(kin.shape[0], device=k.device).view(*k.shape[:2], 1)
        own = torch.arange(k.shape[2], device=k.device) // BLOCK
        twins = (kin[heads, last] == kin[heads, following]) & (last < own) & (following < own)
        return close & ~twins


def _kin(k: Any) -> Any:
    """(B * H, blocks): a number for each block, the same where blocks of a head are equal."""
    B, H, S, D = k.shape
    blocks = torch.nn.functional.pad(k, (0, 0, 0, -S % BLOCK)).view(B * H, -1, BLOCK * D)
    equal = (blocks[:, :, None] == blocks[:, None]).all(3)
    return equal.int().argmax(2)


def _arrays(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: as_array(value) for name, value in tensors.items()}


def _drawn(given: Tensors) -> Tensors:
    return given


def _scaled(factor: float) -> Callable[[Tensors], Tensors]:
    def scaled(given: Tensors) -> Tensors:
        q, k, v = (x.float() * factor for x in given)
        return q, k, v

    return scaled


def _twins(given: Tensors) -> Tensors:
    """Few different blocks, again and again: among equals the higher index is kept.

    Multiples of 1/64 have exact sums, so equal blocks are equal to the last bit.
    """
    q, k, v = ((x.float() * 64).round() / 64 for x in given)
    at = torch.arange(k.shape[2], device=k.device)
    source = at // BLOCK * 3 % TWINS * BLOCK + at % BLOCK
    return q, k[:, :, source.clamp(max=k.shape[2] - 1)], v


def _zero_queries(given: Tensors) -> Tensors:
    q, k, v = given
    at = torch.arange(q.shape[2], device=q.device)
    return q * (at % 3 > 0)[:, None], k, v


def _zero_keys(given: Tensors) -> Tensors:
    q, k, v = given
    return q, k * 0, v


def _equal_values(given: Tensors) -> Tensors:
    """Weights sum to one, so the output is that value."""
    q, k, v = given
    return q, k, v[:, :, :1].expand_as(v).contiguous()


def _older_is_better(given: Tensors) -> Tensors:
    """The first blocks are kept, so of the last ones only the window is seen, to its very edge.

    A few values there are so loud that a single key too much shows.
    """
    q, k, v = given
    at = torch.arange(v.shape[2], device=v.device)
    loud = (at >= KEPT * BLOCK) & (at % 50 == 40)
    return _leaning(q), _lifted(k, -0.2 * _block_of(k)), v.float() * (1 + 99 * loud)[:, None]


def _newer_is_better(given: Tensors) -> Tensors:
    """The last blocks are kept, so the window adds nothing and must not count twice."""
    q, k, v = given
    return _leaning(q), _lifted(k, 0.03 * _block_of(k)), v


def _loud_keys(given: Tensors) -> Tensors:
    """Odd blocks hold one key that every query likes, and others that drag their mean down."""
    q, k, v = given
    at = torch.arange(k.shape[2], device=k.device)
    odd, loud = at // BLOCK % 2 == 1, at % BLOCK == 5
    step = torch.where(loud, 6.0, -0.4) * odd
    return _leaning(q), _lifted(k, step), v


def _outlier(given: Tensors) -> Tensors:
    """One value, far larger than all others, in one dimension of one key."""
    q, k, v = given
    v = v.clone()
    v[..., v.shape[2] // 3, -1] = 300.0
    return q, k, v


def _block_of(k: Any) -> Any:
    return (torch.arange(k.shape[2], device=k.device) // BLOCK).float()


def _leaning(q: Any) -> Any:
    """Queries with a common part, of which `_lifted` makes scores."""
    return q.float() * 0.5 + 1


def _lifted(k: Any, scores: Any) -> Any:
    """Keys whose scores against a leaning query are about so much higher."""
    return k.float() * 0.5 + scores[:, None] * k.shape[3] ** -0.5


CHANGES: dict[str, Callable[[Tensors], Tensors]] = {
    "twin blocks": _twins,
    "zero queries": _zero_queries,
    "zero keys": _zero_keys,
    "equal values": _equal_values,
    "older is better": _older_is_better,
    "newer is better": _newer_is_better,
    "loud keys": _loud_keys,
    "one outlier": _outlier,
}
