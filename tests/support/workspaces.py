"""Files of a session's workspace, read from the host while no sandbox has it."""

import os
from pathlib import Path

from sandboxes.base import Limits
from sandboxes.volume import volume_in


def text_in(state_dir: Path, name: str) -> str:
    """A file of the workspace in the session's folder, whatever holds it."""
    volume = volume_in(state_dir, Limits().disk_bytes)
    with volume.held():
        root = volume.open_root()
        try:
            with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=root)) as file:
                return file.read()
        finally:
            os.close(root)
