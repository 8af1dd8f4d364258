"""One attempt of the archive: its record, transcript, submission, grades and audits."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from transcripts import added, blobs, sealing
from transcripts.added import R
from transcripts.disk import faults, reading, write_atomic
from transcripts.errors import AlreadySealed, ArchiveError, ArchiveReadOnly, Corrupt
from transcripts.events import BlobRef, Event
from transcripts.keys import relative_path
from transcripts.reader import TranscriptReader
from transcripts.records import Attempt, Audit, Grade
from transcripts.sealing import Seal, WorkspaceFile
from transcripts.writer import (
    TranscriptWriter,
    is_locked,
    lock_transcript,
    repair_tail,
    unlock_transcript,
)

RECORD = "attempt.json"


class AttemptFolder:
    """An attempt on disk. ``problems`` collects what reading found broken, in words."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        self._problems: dict[str, None] = {}
        self._record: Attempt | None = None
        self._seal: tuple[Seal, str] | None = None
        if not read_only and self.is_sealed and (path / sealing.LIVE_TRANSCRIPT).exists():
            if self._fits_its_seal():
                self._remove_live_files()  # a kill right after the seal left them
            else:
                self._report(f"attempt {self.id}: its seal does not fit it; live files are kept")

    @property
    def id(self) -> str:
        """The attempt's id."""
        return self.path.name

    @property
    def record(self) -> Attempt:
        """``attempt.json``.

        Raises:
            Corrupt: it is missing or is not an attempt.
        """
        if self._record is None:
            self._record = self._load_record()
        return self._record

    def _load_record(self) -> Attempt:
        try:
            with reading(self.path / RECORD):
                record = Attempt.model_validate_json((self.path / RECORD).read_bytes())
        except (OSError, ValidationError) as error:
            raise Corrupt(f"{self.path / RECORD}: {_short(error)}") from error
        if record.attempt_id != self.id:
            raise Corrupt(f"{self.path / RECORD}: it is of attempt {record.attempt_id}")
        return record

    @property
    def is_sealed(self) -> bool:
        """True when the attempt is finished and can only be added to."""
        return (self.path / sealing.SEAL).exists()

    def _fits_its_seal(self) -> bool:
        """Whether all that the seal names is there as it was: nothing else may be removed."""
        try:
            found = self.load_seal()
            return found is not None and sealing.digests(self.path) == found[0].files
        except (ArchiveError, OSError):
            return False

    def load_seal(self) -> tuple[Seal, str] | None:
        """The seal and its digest, None while the attempt lives.

        Raises:
            Corrupt: there is one that cannot be read.
        """
        if self._seal is None:
            self._seal = sealing.load_seal(self.path)
        return self._seal

    @property
    def seal_digest(self) -> str | None:
        """What grades and audits name, None while the attempt lives."""
        found = self.load_seal()
        return found[1] if found else None

    @property
    def problems(self) -> list[str]:
        """What was found broken so far, each once."""
        return list(self._problems)

    @property
    def workspace(self) -> Path:
        """The session's working files on this host while it lives; removed by the seal."""
        return self.path / sealing.WORKSPACE

    @property
    def submission_dir(self) -> Path:
        """The files handed in, once sealed."""
        return self.path / sealing.SUBMISSION

    # --- the transcript ------------------------------------------------------------------------

    def open_writer(
        self, owner: str, secrets: Mapping[str, str] | None = None, *, durable: bool = True
    ) -> TranscriptWriter:
        """The one writer. ``owner`` is kept beside the lock, for people who wonder who writes.

        ``durable=False`` leaves the flushing to ``close``: for imports, which can be done again.

        Raises:
            ClaimHeld: another process (or another writer here) has it open.
            AlreadySealed: the attempt is finished.
        """
        self._refuse_read_only()
        with faults(self.path):
            writer = TranscriptWriter(self.path, self.id, secrets, durable=durable)
        try:
            write_atomic(self.path / sealing.OWNER, f"{owner}\n".encode())
        except BaseException:
            writer.close()
            raise
        if writer.repaired:
            self._report(writer.repaired)
        return writer

    @property
    def is_being_written(self) -> bool:
        """True while some process has the live transcript open for writing."""
        return is_locked(self.path / sealing.LIVE_TRANSCRIPT)

    @property
    def _reader(self) -> TranscriptReader:
        return TranscriptReader(self.path, self.id, self._report)

    def lines(self) -> Iterator[bytes]:
        """The raw lines of the transcript, live or sealed."""
        return self._reader.lines()

    def events(self) -> Iterator[Event]:
        """All events in order, with memory flat; broken lines are left out and reported."""
        return self._reader.events()

    def event_page(self, first: int, count: int) -> list[Event]:
        """Events ``first`` to ``first + count - 1``; of a sealed attempt only their frames unpack.

        The chain is not followed here: ``verify`` does.
        """
        return list(self._reader.page(first, count))

    def workspace_files(self) -> Iterator[WorkspaceFile]:
        """The changed files of the workspace as they were when the attempt was sealed.

        Raises:
            Corrupt: they are missing or cannot be unpacked.
        """
        return sealing.read_workspace(self.path)

    def blob(self, ref: BlobRef) -> bytes:
        """Content that was too large for its event.

        Raises:
            Corrupt: it is missing or not what the reference says.
        """
        return blobs.get_blob(self.path / sealing.BLOBS, ref)

    # --- writing while live --------------------------------------------------------------------

    def save(self, attempt: Attempt) -> None:
        """Replace ``attempt.json`` while the attempt lives.

        Raises:
            AlreadySealed: it is finished.
        """
        self._refuse_read_only()
        if attempt.attempt_id != self.id:
            raise ValueError(f"attempt {attempt.attempt_id} does not belong in folder {self.id}")
        if self.is_sealed:
            raise AlreadySealed(f"attempt {self.id} is sealed and cannot be written again")
        write_atomic(self.path / RECORD, record_bytes(attempt))
        self._record = attempt

    def add_source(self, name: str, data: bytes) -> Path:
        """Keep the original of an imported log byte for byte, as ``source.<name>``."""
        self._refuse_read_only()
        if self.is_sealed:
            raise AlreadySealed(f"attempt {self.id} is sealed and cannot be written again")
        path = self.path / f"source.{relative_path(name).name}"
        write_atomic(path, data)
        return path

    def seal(
        self,
        attempt: Attempt,
        submission: Mapping[str, bytes],
        workspace: Iterable[WorkspaceFile] = (),
    ) -> str:
        """Finish the attempt and return the seal's digest. Close the writer first.

        ``attempt`` is the final record; its list of submitted files is filled in here.
        A kill at any point leaves a live attempt that can be sealed again, or a sealed one.

        Raises:
            AlreadySealed: it is finished.
            ClaimHeld: the transcript is still open for writing.
            ArchiveFull, ArchiveReadOnly, ArchiveFault: try again later.
            ValueError: a path that the archive cannot hold.
        """
        self._refuse_read_only()
        descriptor = lock_transcript(self.path / sealing.LIVE_TRANSCRIPT)
        try:
            self._seal_locked(descriptor, attempt, submission, workspace)
            self._remove_live_files()
        finally:
            unlock_transcript(descriptor)
        digest = self.seal_digest
        assert digest is not None
        return digest

    def _seal_locked(
        self,
        descriptor: int,
        attempt: Attempt,
        submission: Mapping[str, bytes],
        workspace: Iterable[WorkspaceFile],
    ) -> None:
        with faults(self.path):
            tail = repair_tail(self.path / sealing.LIVE_TRANSCRIPT, descriptor, self.id)
            sealing.remove_temporaries(self.path)
            sealing.pack_transcript(self.path, tail.head.size)
            sealing.write_submission(self.path, submission)
            sealing.write_workspace(self.path, workspace)
            handed_in = sealing.submission_digests(self.path)
            self.save(attempt.model_copy(update={"submission": handed_in}))
            sealing.write_seal(self.path, self.id, tail.head.link, tail.head.lines)

    def _remove_live_files(self) -> None:
        """The seal stands whether or not this works; opening the attempt tries again."""
        try:
            sealing.remove_live_files(self.path)
        except OSError as error:
            self._report(f"leftovers of the live session could not be removed: {error}")

    # --- what is added later -------------------------------------------------------------------

    def add_grade(self, grade: Grade) -> Path:
        """Add ``grades/<id>.json``; nothing is ever overwritten."""
        return self._add("grades", grade.grade_id, grade)

    def grades(self) -> list[Grade]:
        """All intact grades, oldest first."""
        return self._added("grades", Grade)

    def add_audit(self, audit: Audit) -> Path:
        """Add ``audits/<id>.json``; nothing is ever overwritten."""
        return self._add("audits", audit.audit_id, audit)

    def audits(self) -> list[Audit]:
        """All intact audits, oldest first."""
        return self._added("audits", Audit)

    def added_files(self) -> Iterator[Path]:
        """The files of grades, audits and notes."""
        for kind in sealing.ADDED_LATER:
            yield from added.files(self.path / kind)

    def _add(self, kind: str, name: str, record: Grade | Audit) -> Path:
        self._refuse_read_only()
        if not self.is_sealed:
            raise ArchiveError(f"attempt {self.id} still lives: seal it, then add {kind}")
        if (record.attempt_id, record.attempt_seal) != (self.id, self.seal_digest):
            raise ValueError(f"{kind[:-1]} {name} names another attempt or seal than {self.id}'s")
        return added.add(self.path / kind / f"{relative_path(name).name}.json", record)

    def _added(self, kind: str, record: type[R]) -> list[R]:
        found = []
        for path in added.files(self.path / kind):
            try:
                found.append(added.load_as(path, record, self.seal_digest))
            except Corrupt as error:
                self._report(str(error))
        return found

    def _refuse_read_only(self) -> None:
        if self._read_only:
            raise ArchiveReadOnly(f"{self.path} was opened for reading only")

    def _report(self, problem: str) -> None:
        self._problems[problem] = None


def record_bytes(attempt: Attempt) -> bytes:
    """The file form of an attempt."""
    return attempt.model_dump_json(indent=1).encode() + b"\n"


def _short(error: Exception) -> str:
    """The first line of an error, for people."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
