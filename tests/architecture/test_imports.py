"""The import arrows of the architecture, read from the source of every module."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"orchestrator", "graders", "sandboxes", "tasks", "transcripts"}
ALLOWED = {
    "transcripts": {"transcripts"},
    "tasks": {"tasks"},
    "sandboxes": {"sandboxes"},
    "graders": {"graders", "transcripts", "tasks", "sandboxes"},
    "orchestrator": OURS,
}
# Inside orchestrator: a layer may import its own and those below it.
LAYERS = (
    {"errors", "output", "engines"},
    {"models", "turns"},
    {"gateway"},
    {"plan"},
    {"agents"},
    {
        "dealing",
        "devices",
        "faults",
        "gradeprogress",
        "heartbeat",
        "liveview",
        "machine_words",
        "pacing",
        "progress",
        "resume",
        "sessionview",
        "spending",
        "submission",
    },
    {"batch", "foreign", "handin", "gradefile", "qualifying", "sessionbench", "sharing"},
    {"session", "boards"},
    {
        "abandoning",
        "sweep",
        "grading",
        "gradeflow",
        "gradetarget",
        "auditing",
        "importing",
        "replaying",
        "watching",
        "standings",
        "explain",
        "device_words",
        "players",
    },
    {"launch", "doctor"},
    {"commands"},
    {"cli"},
    {"__main__"},
)
GENERIC_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py", "types.py"}


def modules() -> list[Path]:
    return [
        path
        for package in sorted(OURS)
        for path in sorted((ROOT / package).rglob("*.py"))
        if "library" not in path.parts
    ]


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of our own modules that a file imports, at any depth of the code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name for name in names if name.split(".")[0] in OURS}
    return found


def test_packages_import_only_what_stands_below_them() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        for name in imports(path)
        if name.split(".")[0] not in ALLOWED[path.relative_to(ROOT).parts[0]]
    ]
    assert not wrong


def layer_of(dotted: str) -> int | None:
    parts = dotted.split(".")
    if parts[0] != "orchestrator" or len(parts) < 2:
        return None
    ranks = [rank for rank, names in enumerate(LAYERS) if parts[1] in names]
    return ranks[0] if ranks else None


def test_orchestrator_layers_never_import_upwards() -> None:
    wrong = []
    for path in modules():
        relative = path.relative_to(ROOT).with_suffix("")
        own = layer_of(".".join(relative.parts))
        if own is None:
            continue
        wrong += [
            f"{relative} imports {name}" for name in imports(path) if (layer_of(name) or 0) > own
        ]
    assert not wrong


def test_every_module_of_orchestrator_has_a_layer() -> None:
    known = set().union(*LAYERS) | {"__init__"}
    found = {
        path.relative_to(ROOT).parts[1].removesuffix(".py")
        for path in modules()
        if path.relative_to(ROOT).parts[0] == "orchestrator"
    }
    assert found <= known


def test_no_module_is_named_for_nothing() -> None:
    assert not [path for path in modules() if path.name in GENERIC_NAMES]


def test_the_import_rule_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "def f():\n    from orchestrator.session import Session\n    import graders.worker.wire\n"
    )
    assert imports(bad) == {"orchestrator.session.Session", "graders.worker.wire"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules()}
    arrows = {
        name: {found for found in (module_of(i, names) for i in imports(path)) if found}
        for name, path in names.items()
    }
    own = {name: found - {name} for name, found in arrows.items()}
    TopologicalSorter(own).prepare()  # raises CycleError, which names the circle


def module_of(dotted: str, names: dict[str, Path]) -> str | None:
    """The module that an imported name lives in: itself, or what stands before its last dot."""
    for candidate in (dotted, dotted.rpartition(".")[0]):
        if candidate in names:
            return candidate
    return None
