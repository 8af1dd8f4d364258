import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxes.lease import lease_path


class Child:
    """A process that works on the device, frozen by signals as an unprivileged sandbox is."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        while not self.stands_still:
            time.sleep(0.001)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def stands_still(self) -> bool:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def child() -> Iterator[Callable[[], Child]]:
    made: list[Child] = []

    def start() -> Child:
        made.append(Child())
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def device() -> Iterator[str]:
    """A device of this test alone: nothing here has the driver's attention."""
    name = f"GPU-test-{uuid.uuid4().hex}"
    yield name
    lease_path(name).unlink(missing_ok=True)
