import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from transcripts.claims import ClaimFile, holder, take
from transcripts.errors import ClaimHeld, ClaimLost
from transcripts.owner import this_process
from transcripts.records import CellKey
from transcripts.store import Archive

ELSEWHERE = "ffffffffffff-1-1-ffffffffffff"


@pytest.fixture
def cell(attempts) -> CellKey:
    return attempts().cell


def _age(archive: Archive, cell: CellKey, seconds: float) -> None:
    """Make the newest claim's last heartbeat older."""
    path = max((archive.path / "claims" / cell.id).glob("*.json"), key=lambda p: int(p.stem))
    content = ClaimFile.model_validate_json(path.read_bytes())
    beat = content.beat_at - timedelta(seconds=seconds)
    path.write_text(content.model_copy(update={"beat_at": beat}).model_dump_json())


def test_a_cell_is_held_until_it_is_released(archive: Archive, cell: CellKey) -> None:
    claim = take(archive, cell, this_process())
    assert holder(archive, cell) == this_process()
    with pytest.raises(ClaimHeld, match=f"kv-cache x glm-5 .* {this_process()}"):
        take(archive, cell, ELSEWHERE)
    claim.release()
    assert holder(archive, cell) is None
    take(archive, cell, ELSEWHERE)


def test_other_cells_are_free(archive: Archive, attempts) -> None:
    take(archive, attempts().cell, this_process())
    take(archive, attempts(model="qwen3.6").cell, this_process())
    take(archive, attempts(task="layernorm-backward").cell, this_process())


def test_a_dead_owner_of_this_host_is_taken_over_at_once(
    archive: Archive, cell: CellKey, in_child: Callable[[Callable[[], None]], int]
) -> None:
    assert in_child(lambda: take(archive, cell, this_process()) and None) == 0
    assert take(archive, cell, this_process()).generation == 2


def test_another_host_is_waited_for_until_its_claim_expires(
    archive: Archive, cell: CellKey
) -> None:
    theirs = take(archive, cell, ELSEWHERE, ttl_s=30)
    _age(archive, cell, 29)
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process())
    _age(archive, cell, 2)
    mine = take(archive, cell, this_process())
    with pytest.raises(ClaimLost):
        theirs.heartbeat()
    theirs.release()  # changes nothing
    assert holder(archive, cell) == this_process()
    mine.heartbeat()


def test_a_heartbeat_keeps_a_claim(archive: Archive, cell: CellKey) -> None:
    claim = take(archive, cell, ELSEWHERE, ttl_s=30)
    _age(archive, cell, 31)
    claim.heartbeat()
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process())


def test_a_released_claim_cannot_be_beaten(archive: Archive, cell: CellKey) -> None:
    claim = take(archive, cell, this_process())
    claim.release()
    claim.release()
    with pytest.raises(ClaimLost):
        claim.heartbeat()


def test_old_generations_are_pruned_and_a_late_taker_of_one_loses(
    archive: Archive, cell: CellKey
) -> None:
    for _ in range(5):
        take(archive, cell, this_process()).release()
    claim = take(archive, cell, this_process())
    folder = archive.path / "claims" / cell.id
    assert sorted(path.stem for path in folder.glob("*.json")) == ["5", "6"]
    # Somebody who looked when generation 2 was the newest one creates 3 only now.
    (folder / "3.json").write_bytes((folder / "5.json").read_bytes())
    assert holder(archive, cell) == this_process()
    claim.heartbeat()


def test_an_unreadable_claim_holds_for_a_while(archive: Archive, cell: CellKey) -> None:
    take(archive, cell, this_process()).release()
    path = archive.path / "claims" / cell.id / "1.json"
    path.write_text("{")
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process())
    long_ago = (datetime.now(UTC) - timedelta(minutes=5)).timestamp()
    os.utime(path, (long_ago, long_ago))
    take(archive, cell, this_process())


def _race(archive: Archive, cell: CellKey, folder: Path, takers: int) -> list[str]:
    """Let that many processes take the cell at one moment; the owners of those that won."""
    gate_read, gate_write = os.pipe()
    pids = []
    for number in range(takers):
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            os.read(gate_read, 1)  # returns for all at once when the parent closes its end
            try:
                take(archive, cell, f"ffffffffffff-{number}-1-ffffffffffff")
                (folder / f"won-{number}").touch()
            except ClaimHeld:
                pass
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(gate_read)
    os.close(gate_write)
    for pid in pids:
        os.waitpid(pid, 0)
    return [path.name for path in folder.glob("won-*")]


@pytest.mark.parametrize("state", ["never taken", "expired", "released", "dead owner"])
def test_of_racing_takers_exactly_one_wins(
    archive: Archive, attempts, tmp_path: Path, state: str
) -> None:
    for turn in range(10):
        cell = attempts(model=f"model-{turn}").cell
        if state == "expired":
            take(archive, cell, ELSEWHERE)
            _age(archive, cell, 61)
        elif state == "released":
            take(archive, cell, ELSEWHERE).release()
        elif state == "dead owner":
            host, pid, ticks, boot = this_process().split("-")
            take(archive, cell, f"{host}-{pid}-{int(ticks) + 1}-{boot}")
        folder = tmp_path / f"turn-{turn}"
        folder.mkdir()
        assert len(_race(archive, cell, folder, takers=6)) == 1
