import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts.claims import held_attempts, holder, take
from transcripts.errors import ClaimHeld, ClaimLost
from transcripts.keys import new_id
from transcripts.lifesigns import TTL_S, Observer, sign_path
from transcripts.owner import this_process
from transcripts.records import CellKey
from transcripts.store import Archive
from transcripts.verify import sweep_scratch

ELSEWHERE = "ffffffffffff-1-1-ffffffffffff"


@pytest.fixture
def cell(attempts) -> CellKey:
    return attempts().cell


class _Clock:
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def observer(clock: _Clock) -> Observer:
    return Observer(clock)


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


def test_another_host_is_waited_for_until_it_gives_no_sign(
    archive: Archive, cell: CellKey, clock: _Clock, observer: Observer
) -> None:
    theirs = take(archive, cell, ELSEWHERE)
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process(), observer=observer)
    clock.now += TTL_S - 1
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process(), observer=observer)
    clock.now += 2
    mine = take(archive, cell, this_process(), observer=observer)
    with pytest.raises(ClaimLost):
        theirs.heartbeat()
    theirs.release()  # changes nothing
    assert holder(archive, cell) == this_process()
    mine.heartbeat()


def test_one_sign_keeps_all_claims_of_an_owner(
    archive: Archive, attempts, clock: _Clock, observer: Observer
) -> None:
    cells = [attempts(model=f"model-{number}").cell for number in range(3)]
    first, *_ = [take(archive, cell, ELSEWHERE) for cell in cells]
    assert [holder(archive, cell, observer=observer) for cell in cells] == [ELSEWHERE] * 3
    clock.now += TTL_S - 1
    first.heartbeat()
    assert holder(archive, cells[0], observer=observer) == ELSEWHERE
    clock.now += TTL_S - 1
    assert [holder(archive, cell, observer=observer) for cell in cells] == [ELSEWHERE] * 3


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_wall_clocks_decide_nothing(
    archive: Archive, cell: CellKey, clock: _Clock, observer: Observer, jump_s: float
) -> None:
    """Their file times say yesterday, or tomorrow: what counts is whether they change."""
    theirs = take(archive, cell, ELSEWHERE)
    sign = sign_path(archive.path / "claims", ELSEWHERE)
    os.utime(sign, (time.time() + jump_s, time.time() + jump_s))
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process(), observer=observer)
    clock.now += TTL_S - 1
    theirs.heartbeat()
    clock.now += TTL_S - 1
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process(), observer=observer)


def test_attempts_of_a_cell_are_held_apart(archive: Archive, cell: CellKey) -> None:
    one, other = new_id(), new_id()
    deal = take(archive, cell, this_process())
    claim = take(archive, cell, this_process(), one)
    take(archive, cell, ELSEWHERE, other)
    deal.release()
    with pytest.raises(ClaimHeld, match=one[-12:]):
        take(archive, cell, ELSEWHERE, one)
    assert held_attempts(archive, cell) == {one, other}
    claim.release()
    assert held_attempts(archive, cell) == {other}
    assert holder(archive, cell) is None


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


def test_an_unreadable_claim_holds_for_a_while(
    archive: Archive, cell: CellKey, clock: _Clock, observer: Observer
) -> None:
    take(archive, cell, this_process()).release()
    path = archive.path / "claims" / cell.id / "1.json"
    path.write_text("{")
    with pytest.raises(ClaimHeld):
        take(archive, cell, this_process(), observer=observer)
    clock.now += TTL_S + 1
    take(archive, cell, this_process(), observer=observer)


def test_a_full_disk_loses_no_claim(
    archive: Archive, cell: CellKey, clock: _Clock, observer: Observer
) -> None:
    theirs = take(archive, cell, ELSEWHERE)
    assert holder(archive, cell, observer=observer) == ELSEWHERE
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    clock.now += TTL_S - 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        theirs.heartbeat()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert holder(archive, cell, observer=observer) == ELSEWHERE
    clock.now += TTL_S - 1
    assert holder(archive, cell, observer=observer) == ELSEWHERE


def _race(
    archive: Archive, cell: CellKey, folder: Path, takers: int, observer: Observer
) -> list[str]:
    """Let that many processes take the cell at one moment; the owners of those that won."""
    gate_read, gate_write = os.pipe()
    pids = []
    for number in range(takers):
        pid = os.fork()
        if pid == 0:
            os.close(gate_write)
            os.read(gate_read, 1)  # returns for all at once when the parent closes its end
            try:
                take(archive, cell, f"fffffffffff0-{number}-1-ffffffffffff", observer=observer)
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


@pytest.mark.parametrize("state", ["never taken", "gone elsewhere", "released", "dead owner"])
def test_of_racing_takers_exactly_one_wins(
    archive: Archive, attempts, tmp_path: Path, state: str, clock: _Clock
) -> None:
    for turn in range(10):
        cell = attempts(model=f"model-{turn}").cell
        observer = Observer(clock)
        if state == "gone elsewhere":
            take(archive, cell, ELSEWHERE)
            assert holder(archive, cell, observer=observer) == ELSEWHERE
            clock.now += TTL_S + 1
        elif state == "released":
            take(archive, cell, ELSEWHERE).release()
        elif state == "dead owner":
            host, pid, ticks, boot = this_process().split("-")
            take(archive, cell, f"{host}-{pid}-{int(ticks) + 1}-{boot}")
        folder = tmp_path / f"turn-{turn}"
        folder.mkdir()
        assert len(_race(archive, cell, folder, 6, observer)) == 1


def test_gc_forgets_the_signs_of_dead_owners_of_this_host_alone(
    archive: Archive, cell: CellKey
) -> None:
    host, pid, ticks, boot = this_process().split("-")
    dead = f"{host}-{pid}-{int(ticks) + 1}-{boot}"
    for owner in (dead, ELSEWHERE, this_process()):
        take(archive, cell, owner).release()
    sweep_scratch(archive)
    signs = {path.name for path in (archive.path / "claims" / "owners").iterdir()}
    assert signs == {ELSEWHERE, this_process()}
