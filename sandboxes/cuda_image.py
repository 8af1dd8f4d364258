"""The image of docker sandboxes with a CUDA toolkit of its own; see `images/cuda/Dockerfile`.

It is built once, on request: nothing is downloaded when a sandbox starts.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxes.errors import SandboxUnavailable
from sandboxes.host_image import LABEL

if TYPE_CHECKING:
    from docker import DockerClient

IMAGE = "kernel-orchestrator/cuda:1"
_CONTEXT = Path(__file__).parent / "images" / "cuda"


def pinned_base() -> str:
    """The base that is built on unless another is named, with its digest."""
    for line in (_CONTEXT / "Dockerfile").read_text().splitlines():
        if line.startswith("ARG BASE="):
            return line.removeprefix("ARG BASE=")
    raise AssertionError("the Dockerfile names no base")


def build(
    client: "DockerClient", tag: str, base: str, offline: bool, say: Callable[[str], None]
) -> str:
    """Build ``tag`` on ``base``; returns the image's id.

    Raises SandboxUnavailable with the last words.

    ``offline`` gives the build no network and looks for no base outside: it must be complete.
    """
    from docker.errors import APIError, BuildError, ImageNotFound  # noqa: PLC0415 - heavy

    said: list[str] = []
    try:
        if offline:
            client.images.get(base)
        for part in client.api.build(
            path=str(_CONTEXT),
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            buildargs={"BASE": base},
            labels={LABEL: "cuda"},
            network_mode="none" if offline else None,
        ):
            if "error" in part:
                raise BuildError(part["error"], iter(()))
            for line in str(part.get("stream", "")).splitlines():
                said.append(line)
                say(line)
    except ImageNotFound as error:
        raise SandboxUnavailable(f"the engine has no image {base}; load or pull it") from error
    except (APIError, BuildError) as error:
        last = " / ".join([*filter(None, said[-3:]), str(error)])
        raise SandboxUnavailable(f"{tag} was not built on {base}: {last}") from error
    return str(client.images.get(tag).id)
