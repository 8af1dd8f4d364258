"""What this machine does not let any sandbox enforce, said in advance."""

import platform
from collections.abc import Sequence

from sandboxes.syscalls import filter_program
from sandboxes.volume import why_not_limited


def of_the_disk() -> Sequence[str]:
    """A line where workspaces are not limited in size."""
    reason = why_not_limited()
    return [] if reason is None else [f"a workspace may fill the disk: {reason}"]


def of_isolating_kinds() -> Sequence[str]:
    """Those that bubblewrap and docker share."""
    found = list(of_the_disk())
    if not filter_program():
        found.append(f"there is no filter of system calls of ours for {platform.machine()}")
    return found
