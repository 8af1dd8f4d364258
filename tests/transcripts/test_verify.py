import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts import sealing
from transcripts.checks import attempt_problems
from transcripts.disk import temporary_name
from transcripts.events import ToolResult, UserMessage
from transcripts.folder import AttemptFolder
from transcripts.merge import merge
from transcripts.owner import this_process
from transcripts.store import Archive
from transcripts.verify import STRAY_AFTER_S, repair, sweep_scratch, verify

ME = this_process()


@pytest.fixture
def finished(live: AttemptFolder, grades, audits) -> AttemptFolder:
    with live.open_writer(ME) as writer:
        shown, blob = writer.put_text("x" * 100_000)
        writer.append(UserMessage, text="hello")
        writer.append(
            ToolResult, step=0, call_id="1", name="bash", status="ok", text=shown, blob=blob
        )
    live.add_source("log.jsonl", b"{}\n")
    live.seal(live.record, {"solution.py": b"x = 1\n"}, [("a", b"b", False)])
    live.add_grade(grades(live))
    live.add_audit(audits(live))
    return live


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_an_intact_archive_has_no_problems(archive: Archive, finished: AttemptFolder) -> None:
    archive.save_plan({"a": 1})
    assert verify(archive) == []


def test_a_flipped_bit_in_any_file_is_found_and_placed(
    archive: Archive, finished: AttemptFolder
) -> None:
    files = [path for path in finished.path.rglob("*") if path.is_file()]
    assert len(files) >= 10
    for path in files:
        before = path.read_bytes()
        _flip(path)
        found = [str(problem) for problem in verify(archive)]
        assert any(path.name in problem or "transcript" in problem for problem in found), path
        path.write_bytes(before)
    assert verify(archive) == []


def test_a_missing_file_and_an_added_one_are_found(
    archive: Archive, finished: AttemptFolder
) -> None:
    (finished.path / "source.log.jsonl").unlink()
    (finished.submission_dir / "late.py").write_text("x")
    found = "\n".join(str(problem) for problem in verify(archive))
    assert "source.log.jsonl: missing" in found
    assert "submission/late.py: added after the seal" in found


def test_a_transcript_sealed_anew_does_not_pass(
    archive: Archive, finished: AttemptFolder, attempts: Callable
) -> None:
    """The packed transcript of another attempt fits neither the seal nor the chain."""
    another = archive.create(attempts())
    with another.open_writer(ME) as writer:
        writer.append(UserMessage, text="other words")
    another.seal(another.record, {})
    for name in (sealing.PACKED_TRANSCRIPT, sealing.INDEX):
        (finished.path / name).write_bytes((another.path / name).read_bytes())
    found = "\n".join(attempt_problems(finished))
    assert "the chain breaks here" in found
    assert "its end is not the one that the seal names" in found


def test_a_lost_index_is_rebuilt_as_it_was(archive: Archive, finished: AttemptFolder) -> None:
    place = finished.path / sealing.INDEX
    before = place.read_bytes()
    for damage in (place.unlink, lambda: place.write_bytes(b"{}")):
        damage()
        assert verify(archive)
        assert repair(archive) == [f"{finished.id}: {sealing.INDEX} rebuilt"]
        assert place.read_bytes() == before
        assert verify(archive) == []
    assert repair(archive) == []


def test_a_torn_tail_is_set_aside_by_repair(archive: Archive, live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text="whole")
    with (live.path / "transcript.jsonl").open("ab") as file:
        file.write(b'{"n":1,')
    assert "torn" in str(verify(archive)[0])
    assert "set aside" in repair(archive)[0]
    assert verify(archive) == []


def test_repair_never_invents_what_is_lost(archive: Archive, finished: AttemptFolder) -> None:
    (finished.submission_dir / "solution.py").write_text("x = 2\n")
    repair(archive)
    assert any("solution.py: changed after the seal" in str(p) for p in verify(archive))


@pytest.fixture
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nobody can make an inode look older, so the clock goes on instead."""

    def go_on() -> None:
        now = time.time() + STRAY_AFTER_S + 60
        monkeypatch.setattr(time, "time", lambda: now)

    return go_on


def _leave(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_old_leftovers_are_reported_and_removed_and_young_ones_are_not(
    archive: Archive, live: AttemptFolder, an_hour_later: Callable[[], None]
) -> None:
    kept = [
        live.workspace / temporary_name(),
        live.path / "torn" / "7.bin",
        archive.path / ".a.tmp",
    ]
    folder = live.path.parent / temporary_name()
    _leave(archive.path / temporary_name(), live.path / "blobs" / temporary_name(), *kept)
    _leave(folder / "attempt.json", folder / temporary_name())
    os.utime(folder, (1, 1))  # a copy in the making has its source's times
    assert verify(archive) == []
    assert sweep_scratch(archive) == []
    an_hour_later()
    assert len(verify(archive)) == 3
    assert len(sweep_scratch(archive)) == 3
    assert verify(archive) == []
    assert all(path.exists() for path in kept)
    assert not folder.exists()


def test_nothing_that_was_handed_in_is_taken_for_a_leftover(
    archive: Archive, live: AttemptFolder, tmp_path: Path, an_hour_later: Callable[[], None]
) -> None:
    names = ["solution.py", ".note.tmp", "data.tmp", f"a/{temporary_name()}", temporary_name()]
    _leave(live.path / "blobs" / temporary_name(), live.path / "torn" / temporary_name())
    live.add_source("log.tmp", b"the log")
    live.seal(live.record, {name: name.encode() for name in names})
    assert [entry.path for entry in live.record.submission] == sorted(names)
    assert not list(live.path.glob("blobs/.*")) + list(live.path.glob("torn/.*"))
    _leave(live.path / temporary_name())
    an_hour_later()
    assert len(repair(archive)) == 1
    assert verify(archive) == []
    other = Archive.open(tmp_path / "other", create=True)
    assert merge(archive, other).conflicts == []
    copy = other.find(live.id)
    assert {name: (copy.submission_dir / name).read_bytes().decode() for name in names} == {
        name: name for name in names
    }
    assert (copy.path / "source.log.tmp").read_bytes() == b"the log"
    assert repair(other) == []
    (live.submission_dir / ".note.tmp").unlink()
    assert "submission/.note.tmp: missing" in str(verify(archive)[0])


def test_an_archive_below_a_folder_named_workspace_is_swept_too(
    tmp_path: Path, an_hour_later: Callable[[], None]
) -> None:
    archive = Archive.open(tmp_path / "workspace" / "submission" / "archive", create=True)
    _leave(archive.path / "plans" / temporary_name())
    an_hour_later()
    assert len(sweep_scratch(archive)) == 1


def test_the_index_of_many_frames_is_rebuilt_as_it_was(
    archive: Archive, live: AttemptFolder
) -> None:
    with live.open_writer(ME, durable=False) as writer:
        for number in range(400):
            writer.append(UserMessage, text=f"{number}" * 5000)
    live.seal(live.record, {})
    place = live.path / sealing.INDEX
    before = place.read_bytes()
    assert before.count(b"[") > 4
    place.unlink()
    repair(archive)
    assert place.read_bytes() == before
    packed = live.path / sealing.PACKED_TRANSCRIPT
    packed.write_bytes(packed.read_bytes()[:-10])
    assert any("cut off" in problem for problem in attempt_problems(live))
