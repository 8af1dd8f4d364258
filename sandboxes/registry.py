"""Sandbox kinds by name."""

import importlib

from sandboxes.base import SandboxProvider
from sandboxes.errors import SandboxUnavailable

_PROVIDERS = {
    "docker": "sandboxes.docker_engine:DockerProvider",
    "bubblewrap": "sandboxes.bubblewrap:BubblewrapProvider",
    "process": "sandboxes.process:ProcessProvider",
}

KINDS = tuple(_PROVIDERS)
"""Every kind, the preferred ones first."""

ISOLATED = KINDS[:2]
"""Those that isolate."""


def provider(kind: str) -> SandboxProvider:
    """The provider of a kind. Raises SandboxUnavailable for an unknown one."""
    if kind not in _PROVIDERS:
        raise SandboxUnavailable(f"no sandbox kind {kind!r}; choose one of {', '.join(KINDS)}")
    module, _, name = _PROVIDERS[kind].partition(":")
    made: SandboxProvider = getattr(importlib.import_module(module), name)()
    return made


def default_kind() -> str:
    """The first isolating kind that works here. Raises SandboxUnavailable with all reasons."""
    reasons = []
    for kind in ISOLATED:
        reason = provider(kind).unavailable_reason()
        if reason is None:
            return kind
        reasons.append(f"  {kind}: {reason}")
    raise SandboxUnavailable(
        "No isolating sandbox works here:\n"
        + "\n".join(reasons)
        + "\nTo run without isolation all the same, ask for it: `--sandbox process`."
    )
