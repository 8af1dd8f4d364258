"""The command line: which verbs there are, and how an error becomes one clear screen.

Nothing heavy is imported here (a test watches): verbs import what they need when they run.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.commands import (
    archive,
    audit,
    board,
    compare,
    doctor,
    gc,
    grade,
    harness,
    import_log,
    models,
    replay,
    sandbox,
    serve_scripted,
    status,
    sweep,
    tasks,
)
from orchestrator.commands.options import ArchiveOption, Globals, JsonOption

app = typer.Typer(
    name="orchestrator",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Evaluate LLM coding agents that write GPU kernels.",
    epilog="Start with: orchestrator sweep --models oracle,naive,wrong,cheater,idle --deck rounds",
)

app.command("sweep")(sweep.sweep)
app.command("status")(status.status)
app.command("replay")(replay.replay)
app.command("grade")(grade.grade)
app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.command("board")(board.board)
app.add_typer(tasks.app, name="tasks")
app.add_typer(harness.app, name="harness")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(models.app, name="models")
app.command("import")(import_log.import_log)
app.add_typer(archive.app, name="archive")
app.command("doctor")(doctor.doctor)
app.command("gc")(gc.gc)
app.command("serve-scripted")(serve_scripted.serve_scripted)


def _show_version(wanted: bool) -> None:
    if wanted:
        from orchestrator import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _globals(
    ctx: typer.Context,
    archive_folder: ArchiveOption = None,
    as_json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    del version  # its callback has answered
    ctx.obj = Globals(archive=archive_folder, as_json=as_json)


def run(argv: list[str] | None = None) -> int:
    """Run the line and return its exit code; a user's mistake is one screen, never a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = app(args=arguments, prog_name="orchestrator", standalone_mode=False)
        sys.stdout.flush()  # a reader that has gone is met here, not at exit
        return code if isinstance(code, int) else 0
    except SystemExit as stop:
        _flush_or_silence()
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a mistake in the line itself, found by the parser
            return _usage(error, as_json="--json" in arguments)
        code = exit_code_of(error)
        if code is None:
            raise
        _say(error, as_json="--json" in arguments)
        return code


def exit_code_of(error: Exception) -> int | None:
    """The exit code of an error that a user can act on; None for a defect of ours."""
    from orchestrator.errors import UserError
    from sandboxes.errors import SandboxError
    from tasks.errors import TaskError
    from transcripts.errors import ArchiveError

    if isinstance(error, UserError):
        return error.exit_code
    for kind, code in ((TaskError, 2), (SandboxError, 3), (ArchiveError, 4)):
        if isinstance(error, kind):
            return code
    return None


def _say(error: Exception, *, as_json: bool) -> None:
    from orchestrator.output import printable

    with contextlib.suppress(BrokenPipeError):
        if as_json:
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        print(f"error: {printable(str(error))}", file=sys.stderr)


def _usage(error: Any, *, as_json: bool) -> int:
    """Say what the parser of the line found; its exit code."""
    if as_json:
        _say(UsageError(error.format_message()), as_json=True)
    else:
        error.show()
    return int(error.exit_code)


class UsageError(Exception):
    """An unknown option or verb, a value of the wrong kind."""


def _flush_or_silence() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()


def _silence_stdout() -> None:
    """Keep the interpreter from complaining again about a closed pipe at exit."""
    with Path("/dev/null").open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
