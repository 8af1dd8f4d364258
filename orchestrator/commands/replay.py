"""`replay`: watch a session, or execute its tool calls again."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.replaying import Replay
    from orchestrator.watching import Shown
    from transcripts.store import AttemptFolder


_LONGEST_PAUSE_S = 3600.0


def replay(
    ctx: typer.Context,
    attempt: Annotated[str, typer.Argument(help="An attempt id, or the unique beginning of one.")],
    execute: Annotated[bool, typer.Option(help="Run the tool calls again and compare.")] = False,
    sandbox: Annotated[str, typer.Option(help="Where to execute: as for sweep.")] = "auto",
    speed: Annotated[
        float, typer.Option(min=0, help="1 is as it happened, 10 ten times as fast, 0 at once.")
    ] = 0,
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter after each event.")] = False,
    start: Annotated[int, typer.Option("--from", min=0, help="First event.")] = 0,
    search: Annotated[str, typer.Option(help="Only events with this text.")] = "",
    tools: Annotated[bool, typer.Option("--tools", help="Only tool calls and results.")] = False,
    whole: Annotated[bool, typer.Option("--whole", help="Never shorten.")] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a session event by event, with diffs of the files that it writes.

    With --execute the recorded tool calls run in a fresh sandbox, without any model, and every
    result and file is compared with the record; the exit code is 1 where they diverge.

    Example: orchestrator replay 0197 --archive ./archive --tools

    Example: orchestrator replay 0197 --archive ./archive --execute
    """
    from transcripts.store import Archive

    folder = Archive.open(archive_path(ctx, archive), read_only=True).find(attempt)
    out = printer(ctx, as_json)
    if execute:
        done = _execute(folder, sandbox)
        out.emit(_as_data(done), lambda console: _tell(done, console))
        if not done.faithful:
            raise typer.Exit(1)
        return
    from orchestrator.watching import shown

    events = [
        event
        for event in shown(folder.events(), whole=whole)
        if event.n >= start
        and (not tools or event.is_tool)
        and search.lower() in f"{event.title}\n{event.body}".lower()
    ]
    data = [{"n": e.n, "seconds": e.seconds, "title": e.title, "body": e.body} for e in events]
    out.emit(data, lambda console: _watch(events, console, speed, step))


def _execute(folder: "AttemptFolder", sandbox: str) -> "Replay":
    import sys

    from orchestrator.launch import chosen_sandbox
    from orchestrator.replaying import execute

    return execute(folder, chosen_sandbox(sandbox, lambda text: print(text, file=sys.stderr)))


def _watch(events: "list[Shown]", console: "Console", speed: float, step: bool) -> None:
    from rich.syntax import Syntax

    from orchestrator.output import printable

    at = events[0].seconds if events else 0.0
    for event in events:
        if speed:
            time.sleep(min(max(0.0, event.seconds - at) / speed, _LONGEST_PAUSE_S))
        at = event.seconds
        console.print(f"{event.n:5} {event.seconds:8.2f}s  {event.title}", style=event.style)
        if event.body.startswith("--- a/"):
            console.print(
                Syntax(printable(event.body), "diff", background_color="default", word_wrap=True)
            )
        elif event.body:
            console.print(event.body)
        if step and console.is_terminal:
            console.input("")


def _as_data(done: "Replay") -> dict[str, Any]:
    return {
        "faithful": done.faithful,
        "steps": [
            {
                "n": step.step.n,
                "tool": step.step.name,
                "result": step.comparison.kind if step.comparison else "not compared",
                "noise": list(step.comparison.noise) if step.comparison else [],
                "recorded": step.comparison.recorded if step.comparison else None,
                "actual": step.comparison.actual if step.comparison else None,
            }
            for step in done.steps
        ],
        "files": {
            "identical": done.same_files,
            "different": done.different_files,
            "missing": done.missing_files,
            "extra": done.extra_files,
        },
    }


def _tell(done: "Replay", console: "Console") -> None:
    for step in done.steps:
        comparison = step.comparison
        word = comparison.kind if comparison else "not compared"
        noise = (
            f" (differs in {', '.join(comparison.noise)})"
            if comparison and comparison.noise
            else ""
        )
        console.print(f"{step.step.n:5}  {step.step.name}: {word}{noise}")
        if comparison and not comparison.same:
            console.print(f"       line {comparison.line}, recorded: {comparison.recorded}")
            console.print(f"       line {comparison.line}, actual:   {comparison.actual}")
    for word, paths in (
        ("identical", done.same_files),
        ("DIFFERENT", done.different_files),
        ("MISSING", done.missing_files),
        ("extra, not in the record", done.extra_files),
    ):
        for path in paths:
            console.print(f"file   {path}: {word}")
    console.print("faithful" if done.faithful else "diverged", style="bold")
