"""Reading a transcript, live or sealed, in order or a page of it; memory stays flat."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from transcripts import chain, frames, sealing
from transcripts.disk import reading
from transcripts.events import Event


class TranscriptReader:
    """Reads the transcript in one attempt's folder; what is broken goes to ``report``."""

    def __init__(self, folder: Path, attempt_id: str, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._attempt_id = attempt_id
        self._report = report

    def lines(self) -> Iterator[bytes]:
        """The raw lines.

        Raises:
            Corrupt: they cannot be unpacked.
            ArchiveFault: the storage failed for the moment.
        """
        with reading(self._folder):
            yield from self._lines()

    def _lines(self) -> Iterator[bytes]:
        if not self._is_sealed():
            try:
                with (self._folder / sealing.LIVE_TRANSCRIPT).open("rb") as source:
                    yield from source
            except FileNotFoundError:
                if not self._is_sealed():
                    return  # nothing was written yet
            else:
                return
        yield from frames.lines_of(self._folder / sealing.PACKED_TRANSCRIPT)

    def events(self) -> Iterator[Event]:
        """All events; broken lines are left out and reported."""
        for line in chain.Chain(self._attempt_id).follow(self.lines()):
            if line.problem:
                self._report(f"transcript {line.problem}")
            if line.body is not None:
                yield from self._parse(line.body, line.number)

    def page(self, first: int, count: int) -> Iterator[Event]:
        """Events ``first`` to ``first + count - 1``, without following the chain to them."""
        start, lines = self._packed_from(first, count) if self._is_sealed() else (0, self.lines())
        for number, raw in itertools.islice(enumerate(lines, start), first - start, None):
            if number >= first + count:
                break
            parts = chain.split(raw.rstrip(b"\n"))
            if parts is not None:
                yield from self._parse(parts[0], number)

    def _packed_from(self, first: int, count: int) -> tuple[int, Iterator[bytes]]:
        """Number of the first line, and the lines, of the frames that hold the page."""
        place = self._folder / sealing.INDEX
        with reading(place):
            data = place.read_bytes()
        wanted = frames.page(frames.load_index(data, place), first, count)
        start = wanted[0].first_line if wanted else first
        return start, frames.lines_in(self._folder / sealing.PACKED_TRANSCRIPT, wanted)

    def _parse(self, body: bytes, number: int) -> Iterator[Event]:
        try:
            yield chain.load(body)
        except ValueError as error:
            reason = str(error).splitlines()[0]
            self._report(f"transcript line {number + 1}: not an event: {reason}")

    def _is_sealed(self) -> bool:
        return (self._folder / sealing.SEAL).exists()
