"""`python -m orchestrator`: makes sure that the packages found are ours, then runs the line."""

import sys
from importlib.util import find_spec
from pathlib import Path

_SIBLINGS = ("graders", "sandboxes", "tasks", "transcripts")


def main() -> None:
    """Run the command line."""
    _refuse_shadowed_packages()
    from orchestrator.cli import run  # noqa: PLC0415 - only after the check above

    sys.exit(run())


def _refuse_shadowed_packages() -> None:
    """Stop when a foreign folder in the current directory hides one of our top-level packages."""
    home = Path(__file__).resolve().parent.parent
    for name in _SIBLINGS:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != home:
            where = origin.parent if origin else "nowhere"
            sys.exit(
                f"error: the package `{name}` is at {where}, not beside {home}/orchestrator.\n"
                f"A folder named `{name}` in the current directory hides ours: run from another "
                "directory, or use the installed command `orchestrator`."
            )


if __name__ == "__main__":
    main()
