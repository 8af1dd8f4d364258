"""Files of a session's workspace, read from the host while no sandbox has it."""

import os
from pathlib import Path

from sandboxes.base import WORKSPACE, Limits
from sandboxes.volume import volume_in
from sandboxes.workspace import Workspace


def text_in(state_dir: Path, name: str) -> str:
    """A file of the workspace in the session's folder, whatever holds it."""
    limits = Limits()
    volume = volume_in(state_dir, limits.disk_bytes)
    return Workspace(volume, WORKSPACE, os.geteuid(), limits).get(name).decode()
