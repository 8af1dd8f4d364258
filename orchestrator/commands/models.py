"""`models`: which models are known, and whether they answer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import JsonOption, printer

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.models.check import CheckedModel
    from orchestrator.models.entry import ModelEntry

app = typer.Typer(help="Known models, and whether they answer.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Roster file over the built-in one. [default: $ORCHESTRATOR_CONFIG or "
        "~/.config/orchestrator/models.toml]",
        show_default=False,
    ),
]


@app.command("list")
def list_models(
    ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List known models: route, key, context window, prices.

    Beside these, openai/<id>, anthropic/<id>, openrouter/<vendor>/<id> and http://host:port/v1#<id>
    need no entry; NAME?effort=high sets an effort, NAME@label tells two checkpoints apart.

    Example: orchestrator models list --json
    """
    from orchestrator.models.roster import load_roster

    entries = list(load_roster(config))
    rows = [_row(entry) for entry in entries]
    printer(ctx, as_json).emit(rows, lambda console: _show_list(console, rows))


@app.command("check")
def check_models(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models; all whose key is set, and the built-in oracle, if none."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send one tiny request to each model and say what works, what fails and why.

    A tool is offered, so key, route, quota and tool calling are tried. Costs a fraction of a cent
    a model. Exit code 1 when one fails.

    Example: orchestrator models check glm-5 qwen3.6 http://localhost:8000/v1#my-checkpoint
    """
    from dataclasses import asdict

    from orchestrator.models.check import check_all
    from orchestrator.models.roster import load_roster

    roster = load_roster(config)
    if names:
        entries = [roster.resolve(name) for name in names]
    else:
        entries = [entry for entry in roster if entry.name == "oracle" or entry.secrets()]
    checked = check_all(entries)
    printer(ctx, as_json).emit(
        [asdict(one) for one in checked], lambda console: _show_checks(console, checked)
    )
    if not all(one.ok for one in checked):
        raise typer.Exit(1)


def _row(entry: "ModelEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "route": entry.route,
        "model": entry.model,
        "key": entry.key,
        "key_is_set": entry.key is None or bool(entry.secrets()),
        "context_tokens": entry.context_tokens,
        "efforts": list(entry.efforts),
        "prices": entry.prices.model_dump(mode="json") if entry.prices else None,
    }


def _show_list(console: "Console", rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("model", "route", "key", "context", "USD/M in", "out", "cache read", box=None)
    for row in rows:
        rates = row["prices"]["rates"][0] if row["prices"] else {}
        key = row["key"] or "none needed"
        table.add_row(
            row["name"],
            row["route"],
            key if row["key_is_set"] else f"{key} (not set)",
            f"{row['context_tokens']:,}" if row["context_tokens"] else "",
            *(_price(rates.get(kind)) for kind in ("input", "output", "cache_read")),
        )
    console.print(table)


def _price(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _show_checks(console: "Console", checked: "list[CheckedModel]") -> None:
    from rich.table import Table

    table = Table("model", "result", "seconds", "served as", "what to know", box=None)
    for one in checked:
        seconds = "" if one.latency_s is None else f"{one.latency_s:.2f}"
        result = "ok" if one.ok else one.problem
        table.add_row(one.model, result, seconds, one.served_model or "", one.message)
    console.print(table)
