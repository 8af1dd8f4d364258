"""Appending to a live transcript: one event a line, chained, on the disk before it is answered."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from transcripts import blobs, chain, sealing
from transcripts.disk import faults, sync_folder, write_all, write_exclusive
from transcripts.errors import AlreadySealed, ClaimHeld
from transcripts.events import AnyEvent, BlobRef
from transcripts.redact import Secrets

E = TypeVar("E", bound=AnyEvent)


class Head(NamedTuple):
    """Where a transcript ends: the last link, the number of lines, the size in bytes."""

    link: str
    lines: int
    size: int


class Tail(NamedTuple):
    """The head of a transcript that was just locked, and what had to be repaired there."""

    head: Head
    repaired: str | None


class TranscriptWriter:
    """The one writer of a live transcript. Threads may share it; events get consecutive numbers.

    Get one from ``AttemptFolder.open_writer``. An event that ``append`` returned is on the disk.
    ``repaired`` says what was dropped from a torn tail when the transcript was opened, else None.
    """

    def __init__(
        self,
        folder: Path,
        attempt_id: str,
        secrets: Mapping[str, str] | None = None,
        *,
        durable: bool = True,
    ) -> None:
        self._path = folder / sealing.LIVE_TRANSCRIPT
        self._blobs = folder / sealing.BLOBS
        self.attempt_id, self.secrets = attempt_id, Secrets(secrets)
        self._durable = durable
        self._lock = threading.Lock()
        self._opened = time.monotonic()
        self._file = lock_transcript(self._path)
        try:
            tail = repair_tail(self._path, self._file, attempt_id)
        except BaseException:
            os.close(self._file)
            raise
        self.repaired = tail.repaired
        self._head = tail.head

    @property
    def next_n(self) -> int:
        """Number of the next event."""
        return self._head.lines

    def append(self, event_class: type[E], **fields: Any) -> E:
        """Write one event and return it as written (known secrets replaced).

        ``n``, ``at`` and ``offset_s`` are filled in; an importer may give ``at`` and ``offset_s``.

        Raises:
            ArchiveFull: nothing was written; the transcript is whole and can go on later.
            pydantic.ValidationError: a field is wrong; nothing was written.
        """
        return self._append(event_class, fields, sync=self._durable)

    def append_soon(self, event_class: type[E], **fields: Any) -> E:
        """`append` that leaves the disk to the next `append`, which follows at once.

        It outlives this process, and a power cut once that next event has been returned. Intents
        of calls that change nothing, and answers that are acted on at once, need no more; waiting
        for the disk is the larger part of an event's cost.
        """
        return self._append(event_class, fields, sync=False)

    def _append(self, event_class: type[E], fields: dict[str, Any], *, sync: bool) -> E:
        with self._lock:
            fields.setdefault("at", datetime.now(UTC))
            fields.setdefault("offset_s", round(time.monotonic() - self._opened, 6))
            event, body = self._serialise(event_class(n=self._head.lines, **fields))
            link = chain.next_link(self._head.link, body)
            line = chain.join(body, link)
            self._write(line, sync=sync)
            self._head = Head(link, self._head.lines + 1, self._head.size + len(line))
            return event

    def copy(self, event: E) -> E:
        """Append an event of another log: it keeps its times and gets a number of its own."""
        fields = {name: getattr(event, name) for name in type(event).model_fields if name != "n"}
        return self.append(type(event), **fields)

    def put_text(self, text: str) -> tuple[str, BlobRef | None]:
        """Text for an event: whole up to 64 KiB, else its head and tail and the blob with all."""
        if len(text) <= blobs.INLINE_BYTES // 4:
            return text, None
        text = self.secrets.replace_text(text)
        data = blobs.encode(text)
        if len(data) <= blobs.INLINE_BYTES:
            return text, None
        return blobs.shorten(text), blobs.put_blob(self._blobs, data)

    def close(self) -> None:
        """Let the transcript go; closing twice is fine."""
        with self._lock:
            if self._file >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(self._file)
                unlock_transcript(self._file)
                self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serialise(self, event: E) -> tuple[E, bytes]:
        body = chain.dump(event)
        if self.secrets.found_in(body):
            clean = self.secrets.replace(event.model_dump(mode="json"))
            event = type(event).model_validate(clean)
            body = chain.dump(event)
        return event, body

    def _write(self, line: bytes, *, sync: bool) -> None:
        if self._file < 0:
            raise ValueError("the writer is closed")
        with faults(self._path):
            # Longer than what was acknowledged: an append was cut short by a fault or a signal.
            if os.fstat(self._file).st_size != self._head.size:
                os.ftruncate(self._file, self._head.size)
            try:
                write_all(self._file, line)
                if sync:
                    os.fsync(self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._head.size)
                raise


def lock_transcript(path: Path) -> int:
    """Open the live transcript for appending, exclusively; the kernel frees it on death.

    Raises:
        ClaimHeld: another writer has it open.
        AlreadySealed: the attempt is finished.
    """
    _refuse_sealed(path)
    with faults(path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with faults(path):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _refuse_sealed(path)  # it may have been sealed between the look and the lock
        with faults(path):
            sync_folder(path.parent)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ClaimHeld(
            f"{path} is being written{_writer_of(path)}; wait for it, or stop it"
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unlock_transcript(descriptor: int) -> None:
    """Close what ``lock_transcript`` opened, and free it even where a fork shares it.

    A child that another thread has just forked holds every descriptor until it executes its
    program: closing ours alone would leave the transcript locked for that while.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_locked(path: Path) -> bool:
    """True while some process, or another writer of this one, has the transcript locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _writer_of(path: Path) -> str:
    try:
        return f" by {(path.parent / sealing.OWNER).read_text().strip()}"
    except OSError:
        return ""


def _refuse_sealed(path: Path) -> None:
    if (path.parent / sealing.SEAL).exists():
        raise AlreadySealed(f"attempt {path.parent.name} is sealed and cannot be written again")


def repair_tail(path: Path, descriptor: int, attempt_id: str) -> Tail:
    """Find the end of a locked transcript; an incomplete last line moves to a file of its own."""
    links = chain.Chain(attempt_id)
    size, torn = 0, b""
    with path.open("rb") as source:
        for raw in source:
            if raw.endswith(b"\n"):
                links.check(raw)
                size += len(raw)
            else:
                torn = raw
    repaired = _set_aside(path, descriptor, size, torn) if torn else None
    return Tail(Head(links.link, links.count, size), repaired)


def _set_aside(path: Path, descriptor: int, size: int, torn: bytes) -> str:
    side = path.parent / sealing.TORN / f"{size}.bin"
    with contextlib.suppress(FileExistsError):
        write_exclusive(side, torn)
    with faults(path):
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    return f"a torn last line of {len(torn)} bytes was set aside in {side.parent.name}/{side.name}"
