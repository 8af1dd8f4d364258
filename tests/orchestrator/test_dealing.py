"""No attempt is worked on twice, and no cell gets more attempts than were asked for."""

import random
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.dealing import Dealer
from transcripts.claims import take
from transcripts.errors import ClaimHeld
from transcripts.events import SessionEnd
from transcripts.owner import this_process
from transcripts.records import Attempt, CellKey, Entrant, ModelIdentity, Outcome
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End

ENTRANT = Entrant(
    model=ModelIdentity(name="m", served_id="m"), route="r", harness="loop", harness_version="1"
)
CELL = CellKey(
    deck="d",
    task="t",
    task_digest="0" * 64,
    entrant_name=ENTRANT.name,
    entrant_digest=ENTRANT.digest,
)


def new(attempt_id: str) -> Attempt:
    return Attempt(attempt_id=attempt_id, cell=CELL, entrant=ENTRANT, started_at=datetime.now(UTC))


def finish(folder: AttemptFolder, end: End = End.SUBMITTED) -> None:
    outcome = Outcome(end=end)
    with folder.open_writer(this_process()) as writer:
        writer.append(SessionEnd, outcome=outcome)
    folder.seal(folder.record.model_copy(update={"outcome": outcome}), {})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "archive", create=True)


def dealer(archive: Archive, attempts: int, owner: str = "") -> Dealer:
    return Dealer(archive, attempts, owner or this_process(), lambda text: None)


def test_attempts_of_one_cell_are_dealt_at_once_up_to_their_number(archive: Archive) -> None:
    dealing = dealer(archive, 3)
    dealt = [dealing.deal(CELL, new) for _ in range(3)]
    assert len({one[0].id for one in dealt if one}) == 3
    with pytest.raises(ClaimHeld):
        dealing.deal(CELL, new)
    folder, claim = dealt[1] or pytest.fail()
    finish(folder)
    claim.release()
    assert dealing.missing(CELL) == 2
    with pytest.raises(ClaimHeld):
        dealing.deal(CELL, new)


def test_a_finished_cell_is_dealt_no_more(archive: Archive) -> None:
    dealing = dealer(archive, 1)
    folder, claim = dealing.deal(CELL, new) or pytest.fail()
    finish(folder)
    claim.release()
    assert dealing.deal(CELL, new) is None
    assert dealer(archive, 1).deal(CELL, new) is None
    assert dealer(archive, 2).deal(CELL, new) is not None


def test_what_was_left_is_gone_on_with_oldest_first(archive: Archive) -> None:
    dealing = dealer(archive, 2)
    dealt = [dealing.deal(CELL, new) or pytest.fail() for _ in range(2)]
    for _, claim in reversed(dealt):
        claim.release()
    later = dealer(archive, 2)
    again = [(later.deal(CELL, new) or pytest.fail())[0].id for _ in range(2)]
    assert again == [folder.id for folder, _ in dealt]


def test_what_this_run_gave_up_is_left_to_a_later_one(archive: Archive) -> None:
    dealing = dealer(archive, 1)
    folder, claim = dealing.deal(CELL, new) or pytest.fail()
    dealing.give_up(folder)
    claim.release()
    assert dealing.deal(CELL, new) is None
    later = dealer(archive, 1).deal(CELL, new) or pytest.fail()
    assert later[0].id == folder.id


def test_retryable_ends_do_not_count(archive: Archive) -> None:
    dealing = dealer(archive, 1)
    folder, claim = dealing.deal(CELL, new) or pytest.fail()
    finish(folder, End.CANCELLED)
    claim.release()
    assert dealing.missing(CELL) == 1
    assert dealing.deal(CELL, new) is not None


def test_a_deal_that_another_holds_for_long_is_refused(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.dealing._PATIENCE_S", 0.05)
    take(archive, CELL, "ffffffffffff-1-1-ffffffffffff")
    with pytest.raises(ClaimHeld):
        dealer(archive, 1).deal(CELL, new)


WORKER = """
import os, random, sys, threading
sys.path.insert(0, {here!r})
from test_dealing import *
archive, wanted, seed = Archive.open({archive!r}), {wanted}, int(sys.argv[1])
dealing, dice = dealer(archive, wanted), random.Random(seed)
def work():
    while True:
        try:
            dealt = dealing.deal(CELL, new)
        except ClaimHeld:
            if not dealing.missing(CELL):
                return
            threading.Event().wait(0.01)
            continue
        if dealt is None:
            return
        folder, claim = dealt
        with (folder.path / "workers.txt").open("a") as notes:
            notes.write(f"{{os.getpid()}}\\n")
        threading.Event().wait(dice.random() * 0.02)
        claim.heartbeat()
        finish(folder)
        claim.release()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def test_racing_processes_and_a_kill_never_make_one_too_many(
    archive: Archive, tmp_path: Path
) -> None:
    """Three processes of four threads deal one cell of 40 attempts; one of them is killed."""
    here = str(Path(__file__).parent)
    code = WORKER.format(here=here, archive=str(archive.path), wanted=40)
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(seed)], stderr=subprocess.PIPE)
        for seed in range(3)
    ]
    while dealer(archive, 40).missing(CELL) > 40 - random.Random(1).randint(5, 15):
        assert all(worker.poll() is None for worker in workers)
        threading.Event().wait(0.02)
    workers[0].send_signal(signal.SIGKILL)
    errors = [worker.communicate()[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0], errors
    attempts = list(archive.attempts())
    assert [attempt.is_sealed for attempt in attempts] == [True] * 40
    for attempt in attempts:
        workers_of = (attempt.path / "workers.txt").read_text().split()
        killed = [pid for pid in workers_of if pid == str(workers[0].pid)]
        assert len(workers_of) - len(killed) <= 1  # again only after its worker was killed
