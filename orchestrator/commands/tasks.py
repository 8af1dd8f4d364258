"""`tasks`: what can be asked, and whether a task folder can be used."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import JsonOption, printer

if TYPE_CHECKING:
    from rich.console import Console

    from tasks.spec import Task

app = typer.Typer(help="List, show, write and check tasks and decks.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A task's name.")]
CheckArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME|PATH]...", help="Tasks by name or folder. [default: all]"),
]
DeckArgument = Annotated[str, typer.Argument(metavar="DECK", help="A deck's name.")]


@app.command("list")
def list_tasks(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the tasks and the decks that they are in.

    Example: orchestrator tasks list
    """
    from tasks.deck import deck_names, load_deck
    from tasks.loader import load_task, task_names

    decks = {name: [cell.task for cell in load_deck(name).cells] for name in deck_names()}
    rows = [
        {
            "task": task.name,
            "title": task.title,
            "decks": [deck for deck, members in decks.items() if task.name in members],
            "devices": list(task.devices),
            "shapes": len(task.shapes),
            "digest": task.digest,
        }
        for task in map(load_task, task_names())
    ]
    printer(ctx, as_json).emit({"tasks": rows, "decks": decks}, lambda c: _print_list(rows, c))


@app.command("show")
def show_task(ctx: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one task: the request, its sizes with their work, tolerances and rubric.

    Example: orchestrator tasks show kv-cache
    """
    from tasks.loader import cheats, load_rubric, load_task

    task = load_task(name)
    data = {
        **task.model_dump(mode="json"),
        "digest": task.digest,
        "work_by_shape": {shape["shape"]: shape for shape in _work(task)},
        "rubric": load_rubric(task).model_dump(mode="json"),
        "cheats": [cheat.model_dump(mode="json", exclude={"path"}) for cheat in cheats(task)],
        "prompt": task.prompt,
    }
    printer(ctx, as_json).emit(data, lambda console: _print_task(task, data, console))


@app.command("new")
def new_task(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the task and its folder.")],
    language: Annotated[
        str, typer.Option(help="Of the template: numpy (arrays, CPU) or triton (tensors, GPU).")
    ] = "numpy",
    into: Annotated[Path, typer.Option(help="Where its folder goes.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Write a small, complete task to start from; `docs/writing-a-task.md` goes on from there.

    Example: orchestrator tasks new row-norm

    Example: orchestrator tasks new row-norm --language triton --into tasks/library
    """
    from tasks.loader import read_task
    from tasks.scaffold import scaffold

    folder = scaffold(name, language, into)
    # Kernels run through an interpreter on a CPU: right or wrong at small sizes, and no time.
    rehearsal = " --correctness-only" if read_task(folder).interface.framework == "torch" else ""
    files = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    here = f"./{folder}" if len(folder.parts) == 1 else str(folder)
    steps = [
        f"orchestrator tasks check {here}",
        f"orchestrator grade {here}/submissions/oracle --task {here} --device cpu{rehearsal}",
    ]
    printer(ctx, as_json).emit(
        {"folder": here, "files": files, "next": steps},
        lambda c: c.print("\n".join([*files, "next:", *steps]), soft_wrap=True, highlight=False),
    )


@app.command("check")
def check_tasks(
    ctx: typer.Context, names: CheckArgument = None, as_json: JsonOption = False
) -> None:
    """Check task folders; each problem comes with file, field and mend. Exit code 2 if any.

    Runs the task's own reference, adapter and cases in this process: check only what you trust.

    Example: orchestrator tasks check kv-cache ./my-tasks/softmax
    """
    from tasks.loader import task_names
    from tasks.validate import problems

    found = {name: problems(name) for name in (names or task_names())}
    printer(ctx, as_json).emit(found, lambda console: _print_problems(found, console))
    if any(found.values()):
        raise typer.Exit(2)


@app.command("lock")
def lock(ctx: typer.Context, deck: DeckArgument, as_json: JsonOption = False) -> None:
    """Write the present versions and digests of a deck's tasks into the deck.

    A locked task that changed needs a higher `version` in its task.toml first; exit code 2 if not.

    Example: orchestrator tasks lock rounds --json
    """
    from tasks.deck import load_deck, lock_deck

    changed = lock_deck(deck)
    text = f"{deck}: {', '.join(changed)} locked anew" if changed else f"{deck}: nothing changed"
    cells = [cell.model_dump(mode="json") for cell in load_deck(deck).cells]
    data = {"deck": deck, "changed": changed, "cells": cells}
    printer(ctx, as_json).emit(data, lambda c: c.print(text))


def _work(task: "Task") -> list[dict[str, Any]]:
    from tasks.formula import evaluate
    from tasks.rawfloats import itemsize

    rows = []
    for shape in task.shapes:
        names = {**shape.dims, "itemsize": itemsize(shape.dtype)}
        flops, moved = evaluate(task.work.flops, names), evaluate(task.work.bytes, names)
        rows.append({"shape": shape.name, "dtype": shape.dtype, "flops": flops, "bytes": moved})
    return rows


def _print_list(rows: list[dict[str, Any]], console: "Console") -> None:
    from rich.table import Table

    table = Table()
    for column in ("task", "title", "decks", "devices", "shapes", "digest"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["task"],
            row["title"],
            ", ".join(row["decks"]),
            ", ".join(row["devices"]),
            str(row["shapes"]),
            row["digest"][:12],
        )
    console.print(table)


def _print_task(task: "Task", data: dict[str, Any], console: "Console") -> None:
    def line(name: str, value: str) -> None:
        console.print(f"{name:<12}{value}")

    line("task", f"{task.name} (version {task.version}, {task.digest[:12]})")
    line("title", task.title)
    line("devices", f"{', '.join(task.devices)}; languages: {', '.join(task.languages)}")
    line("hand in", f"{task.interface.file} with {_entries(task)}")
    for shape in data["work_by_shape"].values():
        work = f"{shape['flops'] / 1e9:.4g} GFLOP, {shape['bytes'] / 1e6:.4g} MB a call"
        line("shape", f"{shape['shape']} ({shape['dtype']}): {work}")
    for dtype, tolerance in task.tolerance.items():
        gate = task.gate.rms_ratio.get(dtype)
        bounds = f"atol {tolerance.atol:g}, rtol {tolerance.rtol:g}"
        line("tolerance", f"{dtype}: {bounds}, rms ratio {gate:g}" if gate else bounds)
    rubric = data["rubric"]
    for dimension, weight in rubric["dimensions"].items():
        kinds = [item["kind"] for item in rubric["items"] if item["dimension"] == dimension]
        counted = f"{kinds.count('measured')} measured, {kinds.count('judged')} judged"
        line("rubric", f"{weight:g}  {dimension}: {counted}")
    line("cheats", ", ".join(cheat["name"] for cheat in data["cheats"]))
    console.print(f"\n{task.prompt}")


def _entries(task: "Task") -> str:
    return ", ".join(
        f"{entry.name} (optional)" if entry.optional else entry.name
        for entry in task.interface.entries
    )


def _print_problems(found: dict[str, list[str]], console: "Console") -> None:
    for name, problems in found.items():
        plural = "" if len(problems) == 1 else "s"
        verdict = f"{len(problems)} problem{plural}" if problems else "ok"
        console.print(f"{name}: {verdict}")
        for problem in problems:
            console.print(f"  {problem}", soft_wrap=True)
