import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transcripts.checks import attempt_problems, live_damage
from transcripts.errors import (
    AlreadySealed,
    ArchiveError,
    ArchiveReadOnly,
    Corrupt,
    NewerFormat,
    NotAnArchive,
    UnknownAttempt,
)
from transcripts.events import UserMessage
from transcripts.folder import AttemptFolder
from transcripts.owner import this_process
from transcripts.records import Attempt, Audit, CellKey, Grade, Outcome
from transcripts.store import Archive
from transcripts.words import End

ME = this_process()


def test_a_new_folder_becomes_an_archive_and_opens_again(tmp_path: Path) -> None:
    first = Archive.open(tmp_path / "deep" / "archive", create=True)
    again = Archive.open(first.path, create=True)
    assert list(again.attempts()) == []
    assert json.loads((first.path / "archive.json").read_text())["format_version"] == 1


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    for name in ("thesis.tex", "thesis.tmp"):
        (tmp_path / name).write_text("x")
        with pytest.raises(NotAnArchive, match="not an archive"):
            Archive.open(tmp_path, create=True)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_a_file_or_nothing_is_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAnArchive):
        Archive.open(tmp_path / "file", create=True)
    with pytest.raises(NotAnArchive, match="does not exist"):
        Archive.open(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_newer_format_is_refused_before_anything_is_read(archive: Archive) -> None:
    (archive.path / "archive.json").write_text('{"format_version": 2}')
    with pytest.raises(NewerFormat, match="format 2"):
        Archive.open(archive.path)


def test_an_attempt_is_found_by_id_beginning_and_end(archive: Archive, attempts) -> None:
    made = [archive.create(attempts()) for _ in range(3)]
    assert archive.find(made[1].id).id == made[1].id
    assert archive.find(made[1].id[-10:]).id == made[1].id
    with pytest.raises(UnknownAttempt, match="3 attempts match"):
        archive.find(made[0].id[:6])
    with pytest.raises(UnknownAttempt, match="no attempt 'nope'"):
        archive.find("nope")


def test_attempts_are_listed_by_time_and_by_cell(archive: Archive, attempts) -> None:
    made = [archive.create(attempts(model=name)) for name in ("glm-5", "GLM-5", "glm-5")]
    assert [attempt.id for attempt in archive.attempts()] == [attempt.id for attempt in made]
    mine = archive.cell_attempts(made[0].record.cell)
    assert [attempt.id for attempt in mine] == [made[0].id, made[2].id]


def test_entrant_identity_is_in_the_path(archive: Archive, attempts) -> None:
    attempt = attempts(model="zai-org/GLM-5")
    path = archive.create(attempt).path
    assert path.parent.name == f"zai-org%2f_g_l_m-5-{attempt.cell.entrant_digest[:8]}"
    assert path.parent.parent.name == "kv-cache"


def test_names_of_300_characters_work(archive: Archive, attempts) -> None:
    made = archive.create(attempts(model="模/" * 150))
    assert archive.find(made.id).record == made.record
    assert [attempt.id for attempt in archive.attempts()] == [made.id]


def test_one_broken_record_does_not_hide_the_others(archive: Archive, attempts) -> None:
    broken, whole = archive.create(attempts()), archive.create(attempts())
    (broken.path / "attempt.json").write_text("{")
    assert [attempt.id for attempt in archive.attempts()] == [whole.id]
    assert len(archive.problems) == 1
    assert broken.id in archive.problems[0]


def test_a_live_record_is_replaced_and_a_sealed_one_is_not(live: AttemptFolder) -> None:
    ended = live.record.model_copy(update={"outcome": Outcome(end=End.INTERRUPTED)})
    live.save(ended)
    assert AttemptFolder(live.path).record == ended
    live.seal(ended, {})
    with pytest.raises(AlreadySealed):
        live.save(ended)
    with pytest.raises(AlreadySealed):
        live.open_writer(ME)
    with pytest.raises(AlreadySealed):
        live.add_source("x.jsonl", b"x")
    assert not (live.path / "transcript.jsonl").exists()


def test_sealing_lists_the_submission_and_verifies(live: AttemptFolder) -> None:
    live.add_source("session.jsonl", b"\xff\xfe raw bytes")
    digest = live.seal(live.record, {"b/c.py": b"2", "a.py": b"1"})
    assert [entry.path for entry in live.record.submission] == ["a.py", "b/c.py"]
    again = AttemptFolder(live.path)
    assert again.seal_digest == digest
    assert again.record == live.record
    assert (again.path / "source.session.jsonl").read_bytes() == b"\xff\xfe raw bytes"
    assert attempt_problems(again) == []


def test_the_workspace_comes_back_as_it_was_sealed(live: AttemptFolder) -> None:
    files = [
        ("a/run.sh", b"#!/bin/sh\n", True),
        ("empty", b"", False),
        ("long/" + "n" * 200 + "/" + "m" * 200, random.Random(1).randbytes(100_000), False),
        ("\N{GREEK SMALL LETTER ALPHA} b", b"x", False),
    ]
    live.seal(live.record, {}, files)
    assert list(live.workspace_files()) == files
    packed = live.path / "workspace.tar.zst"
    packed.write_bytes(packed.read_bytes()[:50_000])
    with pytest.raises(Corrupt, match="cannot be unpacked"):
        list(live.workspace_files())
    packed.unlink()
    with pytest.raises(Corrupt):
        list(live.workspace_files())


def test_names_of_an_agent_do_not_get_in_the_way_of_sealing(live: AttemptFolder) -> None:
    """Names of ours, names that differ in case alone, and the longest that are kept."""
    own = ["seal.json", "attempt.json", "transcript.jsonl", "workspace/x", "grades/1.json", ".tmp"]
    odd = ["A.py", "a.py", "dot.", "dot", "...", " ", "-rf", "a b", "con", "x:y", "back\\slash"]
    long = ["l" * 255, "/".join(["d" * 84] * 12)]
    names = [*own, *odd, *long]
    live.seal(live.record, dict.fromkeys(names, b"x"), [(name, b"x", False) for name in names])
    assert [entry.path for entry in live.record.submission] == sorted(
        names, key=lambda name: Path(name).parts
    )
    assert [name for name, _, _ in live.workspace_files()] == names
    assert attempt_problems(live) == []


@pytest.mark.parametrize(
    "path",
    ["../evil.py", "/etc/passwd", "", "a/../../b", "nul\0", "n" * 256, "d/" * 512 + "f", "\ud800"],
)
def test_a_submission_stays_in_its_folder(live: AttemptFolder, path: str) -> None:
    with pytest.raises(ValueError, match=r"not a relative path|too long|surrogates"):
        live.seal(live.record, {path: b"x"})
    assert not live.is_sealed
    live.seal(live.record, {"solution.py": b"x"})


def test_pages_of_a_sealed_transcript_are_the_events(live: AttemptFolder) -> None:
    with live.open_writer(ME, durable=False) as writer:
        for number in range(3000):
            writer.append(UserMessage, text=f"{number}:" + "x" * 1000)
    everything = list(live.events())
    for first in (0, 1030, 2990):
        assert live.event_page(first, 20) == everything[first : first + 20]
    live.seal(live.record, {})
    assert list(live.events()) == everything
    for first, count in ((0, 5), (1030, 20), (1000, 1500), (2990, 100), (3000, 5)):
        assert live.event_page(first, count) == everything[first : first + count]


def test_an_attempt_without_events_seals(live: AttemptFolder) -> None:
    live.seal(live.record, {})
    assert list(live.events()) == []
    assert live.event_page(0, 10) == []
    assert attempt_problems(live) == []


def test_grades_and_audits_are_added_and_never_replaced(
    live: AttemptFolder, grades: Callable[..., Grade], audits: Callable[..., Audit]
) -> None:
    with pytest.raises(ArchiveError, match="still lives"):
        live.add_grade(grades(live))
    live.seal(live.record, {})
    first, second = grades(live), grades(live)
    path = live.add_grade(first)
    live.add_grade(first)
    live.add_grade(second)
    live.add_audit(audits(live))
    with pytest.raises(Corrupt, match="nothing was overwritten"):
        live.add_grade(first.model_copy(update={"seconds": 2.0}))
    assert path.name == f"{first.grade_id}.json"
    assert live.grades() == [first, second]
    assert len(live.audits()) == 1
    assert attempt_problems(live) == []


def test_a_grade_of_another_attempt_is_refused(live: AttemptFolder, grades) -> None:
    live.seal(live.record, {})
    with pytest.raises(ValueError, match="another attempt or seal"):
        live.add_grade(grades(live, attempt_seal="0" * 64))


def test_a_changed_grade_is_reported_and_not_used(live: AttemptFolder, grades) -> None:
    live.seal(live.record, {})
    path = live.add_grade(grades(live))
    path.write_text(path.read_text().replace('"pass"', '"wrong"'))
    assert live.grades() == []
    assert any("changed after it was written" in problem for problem in live.problems)
    assert attempt_problems(live) == live.problems


def test_plans_are_kept_once_under_their_digest(archive: Archive) -> None:
    plan = {"models": ["glm-5"], "deck": "rounds"}
    digest = archive.save_plan(plan)
    assert archive.save_plan(dict(reversed(plan.items()))) == digest
    assert archive.plans() == {digest: plan}
    (archive.path / "plans" / f"{digest}.json").write_text('{"models": []}')
    assert archive.plans() == {}
    assert archive.problems


def test_reading_only_writes_nothing(live: AttemptFolder, archive: Archive, attempts) -> None:
    reader = Archive.open(archive.path, read_only=True)
    attempt = reader.find(live.id)
    for write in (
        lambda: reader.create(attempts()),
        lambda: reader.save_plan({}),
        reader.check_writable,
        lambda: attempt.open_writer(ME),
        lambda: attempt.save(attempt.record),
        lambda: attempt.seal(attempt.record, {}),
    ):
        with pytest.raises(ArchiveReadOnly):
            write()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="archive-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_an_archive_of_another_user_says_that_it_is_read_only(
    shared_folder: Path,
    attempts: Callable[..., Attempt],
    in_child: Callable[[Callable[[], None]], int],
) -> None:
    archive = Archive.open(shared_folder / "archive", create=True)
    attempt = archive.create(attempts())
    for folder, _, _ in os.walk(archive.path):
        Path(folder).chmod(0o555)

    def as_another_user() -> None:
        if os.getuid() == 0:  # permission bits do not stop root
            os.setuid(65534)
        opened = Archive.open(archive.path)
        assert opened.find(attempt.id).record == attempt.record
        for write in (
            opened.check_writable,
            lambda: opened.create(attempts()),
            lambda: opened.find(attempt.id).open_writer(ME),
            lambda: opened.save_plan({}),
        ):
            with pytest.raises(ArchiveReadOnly, match="Make the archive writable"):
                write()

    assert in_child(as_another_user) == 0


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a file system without files")
def test_a_file_system_that_takes_no_files_is_read_only() -> None:
    with pytest.raises(ArchiveReadOnly):
        Archive.open("/sys/kernel/archive", create=True)


def test_what_another_process_is_creating_is_not_listed(archive: Archive, attempts) -> None:
    cell: CellKey = attempts().cell
    half = archive.cell_folder(cell) / ".0197-half.tmp"
    half.mkdir(parents=True)
    (half / "attempt.json").write_text("{")
    assert list(archive.attempts()) == []
    assert archive.problems == []


def test_an_event_appended_soon_outlives_a_kill_and_keeps_the_chain(
    live: AttemptFolder, in_child: Callable[[Callable[[], None]], int]
) -> None:
    def write_and_die() -> None:
        writer = live.open_writer(ME)
        writer.append_soon(UserMessage, text="soon")
        writer.append(UserMessage, text="now")
        writer.append_soon(UserMessage, text="last")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(write_and_die)
    assert [event.text for event in live.events()] == ["soon", "now", "last"]
    assert live_damage(live) == []
