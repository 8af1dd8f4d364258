"""Hostile submissions, all our own: tables of attacks, by what they aim at."""

from hostile import (
    endings,
    gpu,
    kernel,
    memories,
    memory,
    objects,
    offspring,
    patches,
    places,
    printing,
    sources,
    waiting,
    wire,
)
from hostile.base import Attack

FAMILIES = {
    module.__name__.rpartition(".")[2]: (str(module.__doc__).strip(), module.ATTACKS)
    for module in (
        *(endings, waiting, offspring, memory, wire, patches, objects, memories),
        *(kernel, places, printing, sources),
    )
}
"""Name of a family -> what it is, and its attacks: those that run on a CPU."""

GPU = (str(gpu.__doc__).strip(), gpu.ATTACKS)
ATTACKS: dict[str, Attack] = {
    attack.name: attack for _, attacks in FAMILIES.values() for attack in attacks
}
