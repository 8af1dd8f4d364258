"""Bringing another archive's attempts, records and plans into this one: an idempotent union.

Nothing here is ever overwritten. What has one id and different content is a conflict: it is
reported and left as it is on both sides.
"""

import itertools
import os
import shutil
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transcripts import added, sealing
from transcripts.disk import (
    faults,
    is_temporary,
    reading,
    remove_tree,
    sync_folder,
    sync_tree,
    temporary_name,
    write_exclusive,
)
from transcripts.errors import ArchiveReadOnly, ClaimHeld, Corrupt
from transcripts.folder import AttemptFolder
from transcripts.store import Archive
from transcripts.writer import lock_transcript


@dataclass
class MergeReport:
    """What a merge did."""

    copied: list[str] = field(default_factory=list)  # attempts that were not here
    finished: list[str] = field(default_factory=list)  # were unfinished here, sealed in the source
    unchanged: int = 0
    records: int = 0  # grades, audits and notes
    plans: int = 0
    skipped: list[str] = field(default_factory=list)  # left out on purpose, with the reason
    conflicts: list[str] = field(default_factory=list)  # need a person

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return dict(vars(self))

    def text(self) -> str:
        """For people."""
        head = (
            f"{len(self.copied)} attempts copied, {len(self.finished)} finished, "
            f"{self.unchanged} were here already; {self.records} grades, audits and notes and "
            f"{self.plans} plans added"
        )
        skipped = [f"skipped: {reason}" for reason in self.skipped]
        return "\n".join([head, *skipped, *(f"CONFLICT: {what}" for what in self.conflicts)])


def merge(source: Archive, destination: Archive) -> MergeReport:
    """Bring everything of ``source`` into ``destination``; ``source`` is only read.

    Raises:
        ArchiveReadOnly, ArchiveFull: the destination cannot be written; run it again later.
    """
    if destination.read_only:
        raise ArchiveReadOnly(f"{destination.path} was opened for reading only")
    report = MergeReport()
    if source.path.resolve() == destination.path.resolve():
        report.skipped.append("both are the same archive")
        return report
    _merge_plans(source, destination, report)
    here = {path.name: path for path in destination.folders()}
    for path in sorted(source.folders(), key=lambda folder: folder.name):
        theirs = AttemptFolder(path, read_only=True)
        try:
            with reading(path):
                ours = _merge_attempt(theirs, here.get(path.name), source, destination, report)
                if ours is not None and ours.is_sealed:
                    _merge_added(theirs, ours, report)
        except (Corrupt, OSError) as error:  # what we could not write is said by other errors
            report.conflicts.append(f"{path.name}: {error}")
    return report


def _merge_plans(source: Archive, destination: Archive, report: MergeReport) -> None:
    known = destination.plans()
    for digest, plan in source.plans().items():
        if digest not in known:
            destination.save_plan(plan)
            report.plans += 1
    report.conflicts += source.problems


def _merge_attempt(
    theirs: AttemptFolder,
    here: Path | None,
    source: Archive,
    destination: Archive,
    report: MergeReport,
) -> AttemptFolder | None:
    """Bring one attempt; the attempt here afterwards, None when it did not come."""
    _ = theirs.record  # unreadable ones are conflicts
    if here is None:
        if not theirs.is_sealed and theirs.is_being_written:
            report.skipped.append(f"{theirs.id}: being written in the source; merge again later")
            return None
        target = destination.path / theirs.path.relative_to(source.path)
        _copy(theirs, target)
        report.copied.append(theirs.id)
        return destination.attempt_at(target)
    ours = destination.attempt_at(here)
    if ours.is_sealed and theirs.is_sealed:
        if ours.seal_digest != theirs.seal_digest:
            raise Corrupt("sealed with different content in the two archives")
        report.unchanged += 1
    elif not _agree(ours, theirs):
        raise Corrupt("went on differently in the two archives")
    elif theirs.is_sealed:
        _finish(theirs, ours)
        report.finished.append(theirs.id)
    elif ours.is_sealed:
        report.unchanged += 1
    else:
        report.skipped.append(f"{theirs.id}: unfinished in both; kept as it is here")
    return ours


def _copy(theirs: AttemptFolder, target: Path) -> None:
    """Copy an attempt under a temporary name, check the copy, and let it appear whole."""
    building = target.parent / temporary_name()
    with faults(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copytree(
                theirs.path,
                building,
                symlinks=True,
                ignore=_left_out(theirs),
                copy_function=_copy_file,
            )
            _check_copy(theirs, building)
            sync_tree(building)
            building.rename(target)
            sync_folder(target.parent)
        finally:
            remove_tree(building)


def _copy_file(source: str, target: str) -> None:
    """Copy one file; ``copytree`` itself would go on after a full disk, and hide why."""
    with faults(Path(target)):
        shutil.copy2(source, target)


def _left_out(theirs: AttemptFolder) -> Any:
    """What is not copied: records (merged one by one), leftovers of a kill."""
    top = {*sealing.ADDED_LATER, sealing.OWNER}
    if theirs.is_sealed:
        top |= {sealing.LIVE_TRANSCRIPT, sealing.WORKSPACE}

    def ignore(folder: str, names: list[str]) -> set[str]:
        at_top = Path(folder) == theirs.path
        return {name for name in names if at_top and (name in top or is_temporary(name))}

    return ignore


def _check_copy(theirs: AttemptFolder, copy: Path) -> None:
    found = theirs.load_seal()
    if found and sealing.digests(copy) != found[0].files:
        raise Corrupt("does not fit its seal in the source; not copied. `archive verify` says more")


def _agree(ours: AttemptFolder, theirs: AttemptFolder) -> bool:
    """True when one transcript begins with the other, and a finished one is not the shorter."""
    for mine, other in itertools.zip_longest(_whole_lines(ours), _whole_lines(theirs)):
        if mine is None:
            return not ours.is_sealed
        if other is None:
            return not theirs.is_sealed
        if mine != other:
            return False
    return True


def _whole_lines(attempt: AttemptFolder) -> Iterable[bytes]:
    return (line for line in attempt.lines() if line.endswith(b"\n"))


def _finish(theirs: AttemptFolder, ours: AttemptFolder) -> None:
    """Seal the copy here with the source's files, in the order that sealing has."""
    found = theirs.load_seal()
    assert found is not None
    _check_copy(theirs, theirs.path)
    try:
        descriptor = lock_transcript(ours.path / sealing.LIVE_TRANSCRIPT)
    except ClaimHeld as error:
        raise Corrupt("sealed in the source, and being written here") from error
    try:
        with faults(ours.path):
            sealing.remove_temporaries(ours.path)
            for name in found[0].files:
                (ours.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(theirs.path / name, ours.path / name)
            _remove_leftovers(ours.path, found[0].files.keys())
            _check_copy(theirs, ours.path)
            sync_tree(ours.path)
        write_exclusive(ours.path / sealing.SEAL, (theirs.path / sealing.SEAL).read_bytes())
        sealing.remove_live_files(ours.path)
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path, kept: Set[str]) -> None:
    """What only the copy here has: a torn line that went on in the source, half a seal's work."""
    for name in sealing.digests(folder).keys() - kept:
        if Path(name).parts[0] in (sealing.TORN, sealing.BLOBS, sealing.SUBMISSION):
            (folder / name).unlink()


def _merge_added(theirs: AttemptFolder, ours: AttemptFolder, report: MergeReport) -> None:
    for path in theirs.added_files():
        target = ours.path / path.relative_to(theirs.path)
        data = path.read_bytes()
        if target.exists():
            if target.read_bytes() != data:
                report.conflicts.append(f"{target}: another record has that id")
            continue
        try:
            added.load(path)
        except Corrupt as error:
            report.conflicts.append(str(error))
            continue
        write_exclusive(target, data)
        report.records += 1
