from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts.checks import attempt_problems
from transcripts.disk import temporary_name
from transcripts.errors import ArchiveReadOnly
from transcripts.events import UserMessage
from transcripts.folder import AttemptFolder
from transcripts.merge import merge
from transcripts.owner import this_process
from transcripts.store import Archive
from transcripts.verify import verify

ME = this_process()


@pytest.fixture
def other(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "other", create=True)


def _session(archive: Archive, attempts, *texts: str) -> AttemptFolder:
    attempt = archive.create(attempts())
    _say(attempt, *texts)
    return attempt


def _say(attempt: AttemptFolder, *texts: str) -> None:
    with attempt.open_writer(ME) as writer:
        for text in texts:
            writer.append(UserMessage, text=text)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_merging_is_a_union_and_again_it_changes_nothing(
    archive: Archive, other: Archive, attempts, grades, audits
) -> None:
    for home in (archive, other):
        attempt = _session(home, attempts, "a", "b")
        attempt.seal(attempt.record, {"solution.py": b"x"}, [("w/file", b"y", True)])
        attempt.add_grade(grades(attempt))
        attempt.add_audit(audits(attempt))
        home.save_plan({"home": str(home.path)})
    report = merge(other, archive)
    assert (len(report.copied), report.records, report.plans) == (1, 2, 1)
    assert report.conflicts == report.skipped == []
    assert len(list(archive.attempts())) == len(archive.plans()) == 2
    assert verify(archive) == []
    before = _bytes(archive.path)
    again = merge(other, archive)
    assert (again.copied, again.records, again.plans, again.unchanged) == ([], 0, 0, 1)
    assert _bytes(archive.path) == before
    merge(archive, other)
    assert {a.id for a in other.attempts()} == {a.id for a in archive.attempts()}
    assert verify(other) == []


def test_records_added_on_both_sides_come_together(
    archive: Archive, other: Archive, attempts, grades
) -> None:
    mine = _session(archive, attempts, "a")
    mine.seal(mine.record, {})
    merge(archive, other)
    theirs = other.find(mine.id)
    mine.add_grade(grades(mine))
    theirs.add_grade(grades(theirs))
    assert merge(other, archive).records == 1
    assert len(mine.grades()) == 2
    assert len(theirs.grades()) == 1  # the source is only read


def test_one_id_with_different_grades_is_a_conflict(
    archive: Archive, other: Archive, attempts, grades
) -> None:
    mine = _session(archive, attempts, "a")
    mine.seal(mine.record, {})
    merge(archive, other)
    grade = grades(mine)
    mine.add_grade(grade)
    other.find(mine.id).add_grade(grade.model_copy(update={"seconds": 9.0}))
    report = merge(other, archive)
    assert len(report.conflicts) == 1
    assert mine.grades() == [grade]


def test_an_attempt_that_is_being_written_stays_behind(
    archive: Archive, other: Archive, attempts
) -> None:
    theirs = other.create(attempts())
    with theirs.open_writer(ME):
        report = merge(other, archive)
    assert report.copied == []
    assert "being written" in report.skipped[0]
    assert merge(other, archive).copied == [theirs.id]


def test_an_unfinished_attempt_comes_with_its_workspace_and_can_go_on(
    archive: Archive, other: Archive, attempts
) -> None:
    theirs = _session(other, attempts, "a")
    theirs.workspace.mkdir()
    (theirs.workspace / "solution.py").write_text("x")
    (theirs.workspace / "link").symlink_to("/etc/passwd")
    merge(other, archive)
    ours = archive.find(theirs.id)
    assert (ours.workspace / "solution.py").read_text() == "x"
    assert (ours.workspace / "link").readlink() == Path("/etc/passwd")
    _say(ours, "b")
    assert len(list(ours.events())) == 2
    assert attempt_problems(ours) == []


def test_an_attempt_finished_elsewhere_is_finished_here(
    archive: Archive, other: Archive, attempts
) -> None:
    theirs = _session(other, attempts, "a")
    merge(other, archive)
    ours = archive.find(theirs.id)
    with (ours.path / "transcript.jsonl").open("ab") as file:
        file.write(b'{"torn')
    _say(theirs, "b")
    theirs.seal(theirs.record, {"solution.py": b"x"})
    report = merge(other, archive)
    assert report.finished == [theirs.id]
    assert report.conflicts == []
    assert ours.seal_digest == theirs.seal_digest
    assert verify(archive) == []
    assert not (ours.path / "transcript.jsonl").exists()
    assert merge(other, archive).unchanged == 1


def test_an_attempt_that_went_on_differently_is_a_conflict(
    archive: Archive, other: Archive, attempts
) -> None:
    theirs = _session(other, attempts, "a")
    merge(other, archive)
    ours = archive.find(theirs.id)
    _say(ours, "here")
    _say(theirs, "there")
    theirs.seal(theirs.record, {})
    before = _bytes(ours.path)
    report = merge(other, archive)
    assert "differently" in report.conflicts[0]
    assert "CONFLICT" in report.text()
    assert _bytes(ours.path) == before
    ours.seal(ours.record, {})
    assert "sealed with different content" in merge(other, archive).conflicts[0]


def test_a_changed_attempt_of_the_source_does_not_come(
    archive: Archive, other: Archive, attempts
) -> None:
    theirs = _session(other, attempts, "a")
    theirs.seal(theirs.record, {"solution.py": b"x"})
    (theirs.submission_dir / "solution.py").write_bytes(b"better")
    report = merge(other, archive)
    assert "does not fit its seal" in report.conflicts[0]
    assert list(archive.attempts()) == []
    assert verify(archive) == []


def test_an_archive_is_not_merged_into_itself_nor_into_one_that_is_only_read(
    archive: Archive, other: Archive
) -> None:
    assert merge(archive, Archive.open(archive.path)).skipped
    with pytest.raises(ArchiveReadOnly):
        merge(other, Archive.open(archive.path, read_only=True))


def test_a_killed_merge_is_completed_by_the_next(
    archive: Archive,
    other: Archive,
    attempts,
    grades,
    in_child: Callable[[Callable[[], None]], int],
    die_at_step: Callable[[int], None],
) -> None:
    theirs = _session(other, attempts, "a")
    theirs.seal(theirs.record, {"solution.py": b"x"})
    theirs.add_grade(grades(theirs))

    def merge_until(step: int) -> None:
        die_at_step(step)
        merge(other, archive)

    codes = [in_child(lambda k=kill_at: merge_until(k)) for kill_at in range(1, 60)]
    assert codes[0] == -9
    merge(other, archive)
    assert archive.find(theirs.id).seal_digest == theirs.seal_digest
    assert len(archive.find(theirs.id).grades()) == 1
    assert verify(archive) == []


def test_leftovers_here_do_not_stand_in_the_way_of_the_sealed_one(
    archive: Archive, other: Archive, attempts
) -> None:
    """A kill in the middle of sealing here; the source was sealed with other files."""
    mine = _session(archive, attempts, "a")
    merge(archive, other)
    for name in ("blobs", "torn", "submission"):
        (mine.path / name).mkdir()
        (mine.path / name / temporary_name()).write_text("x")
        (mine.path / name / "leftover").write_text("x")
    theirs = other.find(mine.id)
    _say(theirs, "b")
    theirs.seal(theirs.record, {"solution.py": b"x"})
    report = merge(other, archive)
    assert (report.finished, report.conflicts) == ([mine.id], [])
    assert attempt_problems(archive.find(mine.id)) == []
