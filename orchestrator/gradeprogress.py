"""What a person sees while a batch of grades runs: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.output import console, printable
from transcripts.records import Grade

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Reporter:
    """Counts what is done and says it. ``eta`` adds how long the rest will take."""

    def __init__(self, say: Callable[[str], None], *, eta: bool = True) -> None:
        self.say = say
        self._eta = eta
        self._total = self._done = self._measured = 0
        self._clock = time.monotonic()
        self.left: list[tuple[str, str]] = []  # name and why, of what could not be taken

    @property
    def left_over(self) -> int:
        """How many have not had their turn."""
        return self._total - self._done

    def begin(self, total: int) -> None:
        """Before the first."""
        self._total, self._clock = total, time.monotonic()

    def start(self, name: str) -> None:
        """A submission's turn begins."""

    def finish(self, name: str, grade: Grade) -> None:
        """It was graded."""
        self._done += 1
        self._measured += 1
        message = f": {grade.message}" if grade.message else ""
        rest = f"; {self.remaining()} left" if self._eta and self.left_over else ""
        self.say(
            f"grade {self._done}/{self._total}: {name}: {grade.result} in "
            f"{grade.seconds:.1f} s{message}{rest}"
        )

    def leave(self, name: str, why: str) -> None:
        """It could not be taken."""
        self._done += 1
        self.left.append((name, why))
        self.say(f"left alone: {name}: {why}")

    def skip(self) -> None:
        """Somebody else has graded it meanwhile."""
        self._done += 1

    def remaining(self) -> str:
        """About how long the rest takes, at the pace so far."""
        spent = time.monotonic() - self._clock
        return duration(spent / max(self._measured, 1) * self.left_over)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """For the duration of the batch."""
        yield


class Bar(Reporter):
    """A bar below the lines, for a terminal."""

    _bar: "Progress"
    _task: "TaskID"

    def __init__(self) -> None:
        super().__init__(self._print)

    def _print(self, text: str) -> None:
        if hasattr(self, "_bar"):
            self._bar.console.print(printable(text))
        else:
            console(stderr=True).print(text)

    def start(self, name: str) -> None:
        """See `Reporter`."""
        self._bar.update(self._task, completed=self._done, name=printable(name))

    def finish(self, name: str, grade: Grade) -> None:
        """See `Reporter`."""
        super().finish(name, grade)
        left = f"{self.remaining()} left" if self.left_over else ""
        self._bar.update(self._task, completed=self._done, left=left)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """See `Reporter`."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

        columns = [
            BarColumn(),
            MofNCompleteColumn(),
            *(TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("left", "name")),
        ]
        with Progress(*columns, console=console(stderr=True), transient=True) as self._bar:
            self._task = self._bar.add_task("", total=self._total, name="", left="")
            yield
        del self._bar


class Quiet(Reporter):
    """Says nothing but what was left alone, which the result holds too."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
