"""Which processes still have a folder in view: by command line, working folder or mounts."""

from pathlib import Path


def processes_that_see(folder: Path) -> list[int]:
    """Pids whose command line, working folder or mount table names ``folder``; not our own."""
    needle = str(folder)
    return [int(entry.name) for entry in Path("/proc").iterdir() if _sees(entry, needle)]


def _sees(entry: Path, needle: str) -> bool:
    if not entry.name.isdigit() or int(entry.name) == _own_pid():
        return False
    try:
        if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False  # dead already, waiting for its parent to notice
        seen = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        seen += (entry / "mountinfo").read_text("utf-8", "replace")
        seen += str((entry / "cwd").readlink())
    except OSError:
        return False
    return needle in seen


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)
