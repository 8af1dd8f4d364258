"""The images of docker sandboxes that are ours: which the engine has, and how they are built."""

from collections.abc import Callable
from typing import Any

from sandboxes import cuda_image, host_image
from sandboxes.docker_engine import client_of_engine, image_of

_CALL_S = 60.0
_BUILD_S = 3600.0


def images() -> list[dict[str, Any]]:
    """Name, id and size of each. Raises SandboxUnavailable where no engine answers."""
    with client_of_engine(_CALL_S) as client:
        return [
            {"image": name, "id": image.id, "bytes": image.attrs["Size"]}
            for image in client.images.list(filters={"label": host_image.LABEL})
            for name in image.tags
        ]


def build_host() -> dict[str, str]:
    """Build the host image; its name and id. Raises SandboxUnavailable."""
    with client_of_engine(_BUILD_S) as client:
        return {"image": host_image.IMAGE, "id": host_image.build(client)}


def build_cuda(
    tag: str, base: str, offline: bool, say: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """Build a CUDA image, ours on the pinned base unless named; its name, id and base.

    Raises SandboxUnavailable.
    """
    chosen, name = base or cuda_image.pinned_base(), tag or cuda_image.IMAGE
    with client_of_engine(_BUILD_S) as client:
        built = cuda_image.build(client, name, chosen, offline, say)
    return {"image": name, "id": built, "base": chosen}


def identity(name: str) -> str:
    """The id of an image, which says what is in it. Raises SandboxUnavailable."""
    with client_of_engine(_CALL_S) as client:
        return image_of(client, name)[0]
