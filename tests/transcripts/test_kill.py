"""Real processes, really killed: what was acknowledged is there afterwards."""

import os
import random
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts import sealing
from transcripts.checks import attempt_problems
from transcripts.errors import AlreadySealed, ArchiveFull
from transcripts.events import UserMessage
from transcripts.folder import AttemptFolder
from transcripts.owner import this_process
from transcripts.store import Archive

KILLS = 20


def _append_for_ever(live: AttemptFolder, acknowledge: int) -> None:
    """Append events of growing size; say the number of each one that is on the disk."""
    with AttemptFolder(live.path).open_writer(this_process()) as writer:
        while True:
            event = writer.append(UserMessage, text="x" * (100 + writer.next_n % 50 * 400))
            os.write(acknowledge, event.n.to_bytes(4, "big"))


def _kill_while_appending(live: AttemptFolder, acknowledged_events: int) -> int:
    """Kill after that many acknowledgements; the last number that was acknowledged."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            _append_for_ever(live, write)
        finally:
            os._exit(1)
    os.close(write)
    said = b""
    while len(said) < 4 * acknowledged_events:
        said += os.read(read, 4)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while chunk := os.read(read, 4096):
        said += chunk
    os.close(read)
    return int.from_bytes(said[-4:], "big")


def test_every_acknowledged_event_survives_kill_9(live: AttemptFolder) -> None:
    moments = random.Random(7)
    for _ in range(KILLS):
        last = _kill_while_appending(live, moments.randint(1, 12))
        numbers = [event.n for event in AttemptFolder(live.path).events()]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > last
        with live.open_writer(this_process()):
            pass
        assert attempt_problems(live) == []


def test_a_writer_that_was_killed_does_not_block_the_next(live: AttemptFolder) -> None:
    _kill_while_appending(live, 1)
    assert not live.is_being_written
    live.open_writer(this_process()).close()


def test_a_kill_at_any_step_of_sealing_loses_nothing(
    archive: Archive,
    attempts: Callable[..., object],
    in_child: Callable[[Callable[[], None]], int],
    die_at_step: Callable[[int], None],
) -> None:
    def seal_until(path: Path, step: int) -> None:
        attempt = AttemptFolder(path)
        record = attempt.record
        die_at_step(step)
        attempt.seal(record, {"solution.py": b"x = 1\n"}, [("notes/a.txt", b"a", False)])

    sealed_states = live_states = 0
    for kill_at in range(1, 1000):
        attempt = archive.create(attempts())
        (attempt.workspace / "deep").mkdir(parents=True)
        (attempt.workspace / "deep" / "file").write_text("state")
        with attempt.open_writer(this_process()) as writer:
            writer.append(UserMessage, text="one")
            writer.append(UserMessage, text="two")
        code = in_child(lambda path=attempt.path, k=kill_at: seal_until(path, k))
        again = archive.find(attempt.id)
        assert [event.n for event in again.events()] == [0, 1], f"killed at step {kill_at}"
        if again.is_sealed:
            sealed_states += 1
            with pytest.raises(AlreadySealed):
                again.seal(again.record, {})
        else:
            live_states += 1
            assert (again.workspace / "deep" / "file").read_text() == "state"
            again.seal(again.record, {"solution.py": b"x = 1\n"}, [("a.txt", b"a", False)])
        assert attempt_problems(again) == []
        assert (again.submission_dir / "solution.py").read_bytes() == b"x = 1\n"
        assert not again.workspace.exists()
        assert not (again.path / sealing.LIVE_TRANSCRIPT).exists()
        if code == 0:
            break
    assert code == 0
    assert live_states > 10
    assert sealed_states > 3


def test_a_full_disk_while_sealing_leaves_an_attempt_that_seals_later(
    live: AttemptFolder, in_child: Callable[[Callable[[], None]], int]
) -> None:
    noise = random.Random(1).randbytes(50_000)
    with live.open_writer(this_process()) as writer:
        writer.append(UserMessage, text=noise.hex())

    def seal(submission: bytes, workspace: bytes) -> None:
        live.seal(live.record, {"solution.py": submission}, [("a", workspace, False)])

    def full() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit, contents in (
            (10_000, (b"", b"")),
            (60_000, (b"x" * 70_000, b"")),
            (60_000, (b"", noise + noise[::-1])),
        ):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(ArchiveFull):
                seal(*contents)
            assert not live.is_sealed
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        seal(b"x = 1", b"y")

    assert in_child(full) == 0
    assert attempt_problems(live) == []
    assert len(list(live.events())) == 1
    assert not list(live.path.rglob("*.tmp"))
