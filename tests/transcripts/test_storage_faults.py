"""What the storage refuses becomes an error of the archive, and the same call works later."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from transcripts.checks import attempt_problems
from transcripts.claims import take
from transcripts.disk import faults, reading
from transcripts.errors import ArchiveFault, ArchiveFull, ArchiveReadOnly
from transcripts.events import UserMessage
from transcripts.folder import AttemptFolder
from transcripts.merge import merge
from transcripts.owner import this_process
from transcripts.store import Archive

ME = this_process()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """A real EMFILE: no file can be opened in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "code",
    ["EMFILE", "ENFILE", "EIO", "ENOMEM", "ESTALE", "EINTR", "ENOLCK", "ENAMETOOLONG", "ENOENT"],
)
def test_any_refusal_of_a_write_is_an_error_of_the_archive(code: str) -> None:
    number = getattr(errno, code)
    with pytest.raises(ArchiveFault, match="Nothing already written is damaged"), faults(Path("x")):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(("code", "kind"), [("ENOSPC", ArchiveFull), ("EROFS", ArchiveReadOnly)])
def test_a_full_disk_and_a_read_only_one_are_told_apart(code: str, kind: type[Exception]) -> None:
    with pytest.raises(kind), faults(Path("x")):
        raise OSError(getattr(errno, code), "")


def test_a_missing_or_broken_file_is_no_fault_of_the_storage() -> None:
    for number in (errno.ENOENT, errno.EIO, errno.EACCES):
        with pytest.raises(OSError, match="why") as found, reading(Path("x")):
            raise OSError(number, "why")
        assert found.value.errno == number


def test_without_descriptors_every_call_says_so_and_works_afterwards(
    archive: Archive, live: AttemptFolder, tmp_path: Path, attempts: Callable
) -> None:
    other = Archive.open(tmp_path / "other", create=True)
    record = live.record
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text="hello")
    calls: list[Callable[[], object]] = [
        lambda: live.open_writer(ME),
        lambda: live.seal(record, {"solution.py": b"x"}, [("a", b"b", False)]),
        lambda: live.save(record),
        lambda: list(live.events()),
        lambda: AttemptFolder(live.path).record,
        lambda: archive.create(attempts()),
        lambda: archive.find(live.id),
        lambda: archive.cell_attempts(record.cell),
        lambda: archive.save_plan({}),
        lambda: Archive.open(archive.path),
        lambda: take(archive, record.cell, ME),
        lambda: merge(archive, other),
    ]
    for call in calls:
        with no_descriptors(), pytest.raises(ArchiveFault):
            call()
    assert merge(archive, other).conflicts == []
    claim = take(archive, record.cell, ME)
    with no_descriptors(), pytest.raises(ArchiveFault):
        claim.heartbeat()
    claim.heartbeat()
    live.seal(record, {"solution.py": b"x"}, [("a", b"b", False)])
    for call in (
        lambda: AttemptFolder(live.path).seal_digest,
        lambda: live.event_page(0, 1),
        lambda: list(live.workspace_files()),
    ):
        with no_descriptors(), pytest.raises(ArchiveFault):
            call()
    assert attempt_problems(live) == []


def test_a_disk_that_is_full_in_the_middle_of_a_merge_is_said(
    archive: Archive, live: AttemptFolder, tmp_path: Path
) -> None:
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text="x" * 50_000)
    other = Archive.open(tmp_path / "other", create=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(ArchiveFull):
            merge(archive, other)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(other.folders()) == []
    assert merge(archive, other).copied == [live.id]
