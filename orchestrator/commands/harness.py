"""`harness`: which vendors' CLIs are known, installed, and working here."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import JsonOption, printer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(help="Vendors' agent CLIs: list, install, try.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="As `harness list` shows it.")]


@app.command("list")
def list_harnesses(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List known harnesses: the pinned version, the dialect, whether it is installed.

    Example: orchestrator harness list --json
    """
    from orchestrator.agents.install import is_installed
    from orchestrator.agents.registry import HARNESSES, harness

    rows = [
        {
            "name": known.name,
            "version": known.package.version,
            "package": f"{known.package.registry}:{known.package.name}",
            "dialect": known.dialect,
            "installed": is_installed(known),
        }
        for known in map(harness, HARNESSES)
    ]
    printer(ctx, as_json).emit(rows, lambda console: _show(console, rows))


@app.command("install")
def install_harness(
    ctx: typer.Context,
    name: NameArgument,
    again: Annotated[bool, typer.Option("--again", help="Also where it is installed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Install the pinned version into the cache folder ($KERNEL_ORCHESTRATOR_HARNESSES).

    Example: orchestrator harness install claude-code
    """
    from orchestrator.agents.install import install
    from orchestrator.agents.registry import harness

    folder = str(install(harness(name), again=again))
    printer(ctx, as_json).emit({"folder": folder}, lambda console: console.print(folder))


@app.command("check")
def check_harness(
    ctx: typer.Context,
    name: NameArgument,
    task: Annotated[str, typer.Option("--task", help="Whose session is played.")] = "kv-cache",
    as_json: JsonOption = False,
) -> None:
    """Read every installed file, then play a scripted session through the CLI on this host.

    Needs no key. Exit code 1 when the CLI does not end well or its log and the wire disagree.

    Example: orchestrator harness check codex
    """
    from orchestrator.agents.install import verified
    from orchestrator.agents.registry import harness
    from orchestrator.agents.trial import try_harness

    chosen = harness(name)
    verified(chosen)
    trial = try_harness(chosen, task)
    result = {
        "finished": trial.native.finished,
        "error": trial.native.error,
        "model_calls": len(trial.wire),
        "tool_calls": trial.native.tool_calls,
        "disagreements": list(trial.disagreements),
        "files": list(trial.files),
        "stderr": "" if trial.native.finished else trial.stderr,
    }
    printer(ctx, as_json).emit(result, lambda console: _show_trial(console, result))
    if not trial.native.finished or trial.disagreements:
        raise typer.Exit(1)


def _show(console: "Console", rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("harness", "version", "package", "dialect", "installed")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


def _show_trial(console: "Console", result: dict[str, Any]) -> None:
    from orchestrator.output import printable

    for name, value in result.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        if shown != "":
            console.print(f"{name}: {printable(str(shown))}", markup=False)
