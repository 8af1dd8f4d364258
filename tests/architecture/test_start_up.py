"""Start-up: the command line must not pull in what only some verbs need."""

import subprocess
import sys

HEAVY = (
    "anthropic",
    "docker",
    "numpy",
    "openai",
    "pydantic",
    "ray",
    "rich",
    "starlette",
    "torch",
    "triton",
    "uvicorn",
)


def loaded_by(code: str) -> set[str]:
    listing = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_command_line_pulls_in_nothing_heavy() -> None:
    assert not loaded_by("import orchestrator.cli") & set(HEAVY)


def test_help_works_and_names_every_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    verbs = (
        "sweep",
        "status",
        "replay",
        "grade",
        "audit",
        "compare",
        "board",
        "tasks",
        "models",
        "doctor",
        "gc",
        "import",
        "archive",
        "serve-scripted",
    )
    assert not [verb for verb in verbs if verb not in done.stdout]
