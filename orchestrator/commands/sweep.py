"""`sweep`: sessions, isolated regrade, audit and board in one command."""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.output import Printer
    from orchestrator.sweep import Sweep


def sweep(
    ctx: typer.Context,
    models: Annotated[str, typer.Option(help="Models, joined by commas; see `models list`.")],
    deck: Annotated[str, typer.Option(help="The deck of tasks.")] = "rounds",
    tasks: Annotated[str, typer.Option(help="Only these tasks of the deck.")] = "",
    agent: Annotated[
        str, typer.Option(help="`loop` (our own), or a harness; see `harness list`.")
    ] = "loop",
    allow_net: Annotated[
        str, typer.Option(help="Hosts (host or host:port) that a harness's sessions may reach.")
    ] = "",
    attempts: Annotated[int, typer.Option(min=1, help="Finished attempts wanted per cell.")] = 1,
    concurrency: Annotated[
        str,
        typer.Option(help="Sessions at once: a number per model, or `auto`: as providers bear."),
    ] = "auto",
    sandbox: Annotated[
        str, typer.Option(help="docker, bubblewrap, process (no isolation), or `auto`.")
    ] = "auto",
    image: Annotated[
        str, typer.Option(help="Docker image with its own tools; see `sandbox build --cuda`.")
    ] = "",
    disk: Annotated[
        float, typer.Option(help="GiB that a session's workspace may hold, where it can be capped.")
    ] = 4.0,
    gpu: Annotated[
        str, typer.Option(help="GPUs for tasks that use one: UUIDs or their beginnings, by commas.")
    ] = "",
    per_gpu: Annotated[int, typer.Option(min=1, help="Sessions that share a GPU.")] = 4,
    device: Annotated[
        str, typer.Option(help="`cpu` rehearses tasks for a GPU at their small sizes.")
    ] = "",
    tier: Annotated[str, typer.Option(help="How thorough the regrade is: quick or full.")] = "full",
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Cap of model calls a session.")
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Cap of time a session.")] = None,
    max_session_cost: Annotated[
        float | None, typer.Option(help="Cap of US dollars a session.")
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Start nothing new once the sweep, earlier runs included, spent this."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Your own models (TOML).")] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run every model on every task, regrade in isolation, audit, and print the board.

    Run it again to finish what is unfinished: nothing is done twice.

    Example: orchestrator sweep --models oracle,naive --deck rounds --archive ./archive
    """
    from orchestrator.commands.values import one_of, positive, positive_or_auto
    from orchestrator.grading import GradingOptions
    from orchestrator.launch import SweepRequest, prepared, split_names
    from orchestrator.output import console
    from orchestrator.progress import Progress
    from orchestrator.sharing import Wanted
    from transcripts.records import Budget

    wanted_tier = one_of("--tier", tier, ("quick", "full"))
    request = SweepRequest(
        archive=archive_path(ctx, archive),
        models=split_names(models),
        deck=deck,
        agent=agent,
        allow_net=split_names(allow_net) if allow_net else (),
        tasks=split_names(tasks) if tasks else (),
        attempts=attempts,
        concurrency=positive_or_auto("--concurrency", concurrency),
        sandbox=sandbox,
        image=image,
        tier=wanted_tier,
        budget=Budget(
            max_steps=max_steps,
            max_seconds=positive("--max-seconds", max_seconds),
            max_cost_usd=positive("--max-session-cost", max_session_cost),
        ),
        config=config,
        devices=Wanted(
            split_names(gpu) if gpu else (), one_of("--device", device, ("", "cpu")), per_gpu
        ),
        max_cost_usd=positive("--max-cost", max_cost),
        disk_bytes=int((positive("--disk", disk) or 0) * (1 << 30)),
    )
    out = printer(ctx, as_json)
    live = console(stderr=True).is_terminal
    progress = Progress(mode="json" if out.as_json else "live" if live else "plain")
    with prepared(request, progress) as run:
        for line in run.describe():
            progress.say(line)
        run.run_sessions()
        run.grade_and_audit(GradingOptions(tier=wanted_tier, isolation=run.isolation))
        _finish(run, deck, out)


def _finish(run: "Sweep", deck: str, out: "Printer") -> None:
    """Print the board and leave with the code that says whether all is done."""
    from orchestrator.boards.board import build
    from orchestrator.boards.render import render

    for defect in run.result.defects:
        out.note("".join(traceback.format_exception(defect)))
    boards = build(run.archive, deck)

    def show(console: "Console") -> None:
        for board in boards:
            render(board, console)

    out.emit([board.model_dump(mode="json") for board in boards], show)
    if run.result.defects:
        out.note("The errors above are defects of this product: please report them.")
        raise typer.Exit(1)
    if run.stopped:
        raise typer.Exit(130)
    if run.result.resumable:
        out.note("Some sessions were interrupted by infrastructure: run the same command again.")
        raise typer.Exit(5)
    if run.result.not_started:
        out.note(
            f"--max-cost left {run.result.not_started} attempts unstarted: run the same command "
            "with a higher cap to go on."
        )
        raise typer.Exit(5)
