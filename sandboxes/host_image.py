"""The image of docker sandboxes that no registry is needed for: an empty root.

What is in it at run time are the read-only mounts of the host's toolchain, so it suits air-gapped
machines and CI. A missing image would be looked up outside, hence the check before each use.
"""

import contextlib
import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import DockerClient

REPOSITORY, TAG = "kernel-orchestrator/host", "1"
IMAGE = f"{REPOSITORY}:{TAG}"
LABEL = "kernel-orchestrator.image"


def ensure(client: "DockerClient") -> str:
    """Import the image if the engine lacks it; returns its name."""
    from docker.errors import ImageNotFound  # noqa: PLC0415 - heavy

    try:
        client.images.get(IMAGE)
    except ImageNotFound:
        build(client)
    return IMAGE


def build(client: "DockerClient") -> str:
    """Import the image, in place of one that is there; returns its id."""
    from docker.errors import APIError  # noqa: PLC0415 - heavy

    before = client.images.list(IMAGE)
    client.api.import_image_from_data(
        _empty_tar(), repository=REPOSITORY, tag=TAG, changes=[f"LABEL {LABEL}=host"]
    )
    for image in before:
        with contextlib.suppress(APIError):  # one in use goes later, by `docker image prune`
            client.images.remove(str(image.id))
    return str(client.images.get(IMAGE).id)


def _empty_tar() -> bytes:
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w").close()
    return buffer.getvalue()
