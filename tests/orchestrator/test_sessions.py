"""Sessions against the real scripted server, in a real sandbox, with the real referee."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.launch import SweepRequest, prepared
from orchestrator.machine_words import about_machine
from orchestrator.progress import Progress
from orchestrator.sweep import Sweep
from tasks.loader import load_task
from transcripts.claims import take
from transcripts.errors import ClaimHeld
from transcripts.events import Event, Fault, Prompt, Retry, SessionEnd, SessionStart, ToolResult
from transcripts.records import Budget
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End

Sweeping = Callable[..., list[AttemptFolder]]


@pytest.fixture
def sweeping(tmp_path: Path) -> Sweeping:
    """Run the sessions of a sweep on one task and return the attempts."""

    def run(models: str, during: Callable[[Sweep], None] = lambda _: None, **changes: object):
        request = SweepRequest(
            archive=tmp_path / "archive",
            models=models.split(","),
            deck="rounds",
            tasks=["layernorm-backward"],
            **changes,  # type: ignore[arg-type]
        )
        with prepared(request, Progress(live=False)) as sweep:
            during(sweep)
            result = sweep.run_sessions()
            assert not result.defects
            return list(sweep.archive.attempts())

    return run


def events_of(folder: AttemptFolder, kind: type[Event]) -> list[Event]:
    return [event for event in folder.events() if isinstance(event, kind)]


def test_a_session_survives_every_fault_of_a_provider(sweeping: Sweeping) -> None:
    (folder,) = sweeping("flaky")
    assert folder.record.outcome is not None
    assert folder.record.outcome.end is End.SUBMITTED
    errors = {event.error for event in events_of(folder, Retry)}
    assert errors >= {"rate_limit", "server_error", "dropped_stream", "malformed", "overloaded"}


def test_the_transcript_keeps_the_request_with_the_words_about_its_machine(
    sweeping: Sweeping,
) -> None:
    (folder,) = sweeping("idle")
    [asked] = [event.text for event in events_of(folder, Prompt) if event.role == "user"]
    task = load_task("layernorm-backward")
    assert asked == f"{task.prompt}\n{about_machine(task, 'cpu')}\n"


def test_bad_calls_are_answered_in_words_and_counted_by_status(sweeping: Sweeping) -> None:
    (folder,) = sweeping("flaky")
    results = [e for e in events_of(folder, ToolResult) if e.status == "bad_call"]
    texts = "\n".join(event.text for event in results)
    assert len(results) == 3
    assert "no tool `shell`" in texts
    assert "not valid JSON" in texts
    assert "command" in texts


def test_a_stop_leaves_the_session_resumable_and_the_next_run_finishes_it(
    sweeping: Sweeping,
) -> None:
    model = "longhaul?steps=12&tool_s=0.05"

    def stop_soon(sweep: Sweep) -> None:
        threading.Timer(0.6, sweep.stop).start()

    (folder,) = sweeping(model, stop_soon)
    assert not folder.is_sealed
    assert folder.record.outcome is not None
    assert folder.record.outcome.end is End.INTERRUPTED
    before = list(folder.lines())
    (folder,) = sweeping(model)
    assert folder.is_sealed
    assert list(folder.lines())[: len(before)] == before
    assert [event.resumed for event in events_of(folder, SessionStart)] == [False, True]
    assert [event.fault for event in events_of(folder, Fault)] == ["stop_requested"]
    steps = (folder.submission_dir / "progress.log").read_text().split()
    assert steps == [str(step) for step in range(12)]


def test_a_finished_cell_is_not_run_again(sweeping: Sweeping) -> None:
    first = sweeping("idle")
    again = sweeping("idle")
    assert [folder.id for folder in again] == [folder.id for folder in first]


def test_more_attempts_top_an_archive_up(sweeping: Sweeping) -> None:
    sweeping("idle")
    folders = sweeping("idle", attempts=3)
    assert len(folders) == 3
    assert len({folder.record.cell.id for folder in folders}) == 1


def test_a_cap_of_steps_ends_a_session_as_a_limit_and_keeps_the_last_state(
    sweeping: Sweeping,
) -> None:
    budget = Budget(max_steps=5)
    (folder,) = sweeping("longhaul?steps=50", budget=budget)
    assert folder.record.outcome is not None
    assert (folder.record.outcome.end, folder.record.outcome.reason) == (End.LIMIT, "steps")
    assert folder.record.steps == 5
    assert (folder.submission_dir / "progress.log").read_text().split() == list("01234")


def test_two_budgets_are_two_entrants(sweeping: Sweeping) -> None:
    sweeping("idle")
    folders = sweeping("idle", budget=Budget(max_steps=9))
    assert len({folder.record.entrant.digest for folder in folders}) == 2


def test_a_label_makes_another_entrant(sweeping: Sweeping) -> None:
    folders = sweeping("idle@monday,idle@tuesday")
    assert Counter(folder.record.entrant.name for folder in folders) == {
        "idle[monday]": 1,
        "idle[tuesday]": 1,
    }
    assert len({folder.path.parent for folder in folders}) == 2


def test_two_orchestrators_share_the_cells(sweeping: Sweeping, tmp_path: Path) -> None:
    folders: list[list[AttemptFolder]] = []
    threads = [
        threading.Thread(target=lambda: folders.append(sweeping("idle,oracle"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 2
    attempts = list(Archive.open(tmp_path / "archive").attempts())
    assert len(attempts) == 2
    assert all(attempt.is_sealed for attempt in attempts)


def test_a_held_cell_is_waited_for(sweeping: Sweeping, tmp_path: Path) -> None:
    (folder,) = sweeping("idle")
    archive = Archive.open(tmp_path / "archive")
    claim = take(archive, folder.record.cell, "another-host:1:1:1")
    with pytest.raises(ClaimHeld, match="another-host"):
        take(archive, folder.record.cell, "me")
    threading.Timer(0.5, claim.release).start()
    assert len(sweeping("idle", attempts=2)) == 2


def test_the_last_event_of_a_sealed_session_is_its_end(sweeping: Sweeping) -> None:
    (folder,) = sweeping("idle")
    *_, last = folder.events()
    assert isinstance(last, SessionEnd)
    assert last.outcome.end is End.NO_SUBMISSION
    assert folder.record.submission == ()
