"""`sandbox`: the images of docker sandboxes, and whether each kind keeps its promises here."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import JsonOption, printer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(help="Sandboxes: list, build images, check.", no_args_is_help=True)

KindsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KIND]...", help="[default: all that work here]")
]
ImageOption = Annotated[
    str, typer.Option(help="For docker: an image with tools of its own, instead of the host's.")
]


@app.command("list")
def list_sandboxes(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the kinds of sandboxes, what this machine lacks for them, and our images.

    Example: orchestrator sandbox list
    """
    from sandboxes.docker_images import images
    from sandboxes.registry import KINDS, provider

    kinds = []
    for name in KINDS:
        reason = provider(name).unavailable_reason()
        lacks = [] if reason else list(provider(name).shortcomings())
        kinds.append({"kind": name, "works": reason is None, "reason": reason, "lacks": lacks})
    works = any(row["kind"] == "docker" and row["works"] for row in kinds)
    rows = {"kinds": kinds, "images": images() if works else []}
    printer(ctx, as_json).emit(rows, lambda console: _show(console, rows))


@app.command("build")
def build_image(
    ctx: typer.Context,
    host: Annotated[bool, typer.Option("--host", help="The host image: an empty root.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", help="An image with a CUDA toolkit.")] = False,
    base: Annotated[
        str, typer.Option(help="Build the CUDA image on this. [default: NVIDIA's, pinned]")
    ] = "",
    tag: Annotated[str, typer.Option(help="Its name. [default: kernel-orchestrator/cuda:1]")] = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="No network: the base is there and complete.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Build an image of docker sandboxes; nothing is downloaded later, when they run.

    Example: orchestrator sandbox build --cuda
    """
    from orchestrator.errors import UserError
    from sandboxes.docker_images import build_cuda, build_host

    if host == cuda:
        raise UserError("say which image: --host or --cuda")
    if host and (base or tag or offline):
        raise UserError("--base, --tag and --offline are for --cuda; the host image needs none")
    out = printer(ctx, as_json)
    built = build_cuda(tag, base, offline, out.note) if cuda else build_host()
    out.emit(built, lambda console: console.print(f"{built['image']} {built['id']}"))


@app.command("check")
def check_sandboxes(
    ctx: typer.Context,
    kinds: KindsArgument = None,
    image: ImageOption = "",
    gpu: Annotated[str, typer.Option(help="UUID of a GPU to pass in.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Start a sandbox of each kind and look at its limits from inside.

    Exit code 1 when a look fails, 3 when a kind that was named does not work here.

    Example: orchestrator sandbox check bubblewrap
    """
    from sandboxes.checkup import check
    from sandboxes.registry import ISOLATED, provider

    wanted = kinds or [kind for kind in ISOLATED if provider(kind).unavailable_reason() is None]
    looks = [
        {"kind": kind, "topic": look.topic, "ok": look.ok, "detail": look.detail}
        for kind in wanted
        for look in check(provider(kind), image, (gpu,) if gpu else ())
    ]
    printer(ctx, as_json).emit(looks, lambda console: _show_looks(console, looks))
    if not looks:
        raise typer.Exit(3)
    if not all(look["ok"] for look in looks):
        raise typer.Exit(1)


def _show(console: "Console", rows: dict[str, Any]) -> None:
    for row in rows["kinds"]:
        console.print(f"{row['kind']}: {row['reason'] or 'works'}", markup=False)
        for line in row["lacks"]:
            console.print(f"  but {line}", markup=False)
    for row in rows["images"]:
        size = f"{row['bytes'] / 1e6:.0f} MB"
        console.print(f"image {row['image']}: {row['id']}, {size}", markup=False)


def _show_looks(console: "Console", looks: list[dict[str, Any]]) -> None:
    from orchestrator.output import printable

    for look in looks:
        word = "ok    " if look["ok"] else "FAILED"
        line = f"{word} {look['kind']}: {look['topic']}: {printable(look['detail'])}"
        console.print(line, markup=False)
