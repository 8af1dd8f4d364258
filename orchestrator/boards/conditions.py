"""Under what conditions results were made, and what makes two of them not comparable.

Hardware, toolchain, task digest, budget, effort, network and interventions must be equal; the
harness, the route and the sampling are part of who is compared, so a difference there is named
and no obstacle.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from orchestrator.errors import UserError
from transcripts.records import Budget, Entrant

Conditions = Mapping[str, tuple[str, ...]]
"""By name of the condition: how it was for each of the compared, as text; "" is 'not stated'."""


class NotComparable(UserError):
    """The results were made under different conditions; ``--anyway`` prints them all the same."""

    exit_code = 1


def obligations(entrant: Entrant) -> dict[str, str]:
    """What must be equal for a fair comparison."""
    return {
        "budget": _budget(entrant.budget),
        "effort": entrant.effort or "not set",
        "network": entrant.network,
        "interventions": ", ".join(entrant.interventions) or "none",
    }


def particulars(entrant: Entrant) -> dict[str, str]:
    """What may differ, and is said where it does."""
    model = entrant.model
    served = "as named" if model.served_id == model.name else model.served_id
    return {
        "served model": " ".join(p for p in (served, model.weights_digest) if p),
        "server flags": " ".join(model.server_flags) or "none",
        "harness": f"{entrant.harness} {entrant.harness_version}".strip(),
        "instructions": entrant.prompt_digest[:8] or "not stated",
        "route": entrant.route,
        "sampling": ", ".join(f"{k}={v}" for k, v in sorted(entrant.sampling.items())) or "default",
    }


def entrant_differences(entrants: Mapping[str, Entrant]) -> list[str]:
    """In what entrants differ, one line a field; keys are what to call them."""
    everything = [obligations(entrant) | particulars(entrant) for entrant in entrants.values()]
    return differences(side_by_side(everything), list(entrants))


def side_by_side(each: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """One mapping for each of the compared, turned into one tuple for each condition."""
    names = dict.fromkeys(name for one in each for name in one)
    return {name: tuple(one.get(name, "") for one in each) for name in names}


def differences(conditions: Conditions, labels: Sequence[str]) -> list[str]:
    """One line for each condition that is stated and not equal for all."""
    lines = []
    for name, values in conditions.items():
        if any(a != b for a, b in pairwise(values)):
            each = ", ".join(
                f"{label} {value or 'not stated'}"
                for label, value in zip(labels, values, strict=True)
            )
            lines.append(f"{name} differs: {each}")
    return lines


def _budget(budget: Budget) -> str:
    caps = budget.model_dump(exclude_none=True)
    return ", ".join(f"{name} {cap:g}" for name, cap in caps.items()) or "no caps"
