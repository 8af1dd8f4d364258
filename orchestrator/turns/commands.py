"""The folder of commands that a session finds on its PATH: one small program under three names."""

from pathlib import Path

from sandboxes.base import Mount
from sandboxes.toolchain import interpreter

INSIDE = "/opt/session"
NAMES = ("check", "bench", "submit")
_CLIENT = Path(__file__).with_name("client.py")


def command_folder(folder: Path) -> Mount:
    """Write the commands into ``folder`` and say where they are to be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    program = f"#!{interpreter()} -IS\n{_CLIENT.read_text('utf-8')}"
    for name in NAMES:
        path = folder / name
        path.write_text(program, "utf-8")
        path.chmod(0o755)
    folder.chmod(0o755)
    return Mount(folder, INSIDE)
