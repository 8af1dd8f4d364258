"""What a sweep spent, its cap of money, and what the rest may cost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_servers import Canned, CannedServer
from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from orchestrator.spending import Purse, spent_usd
from orchestrator.sweep import Sweep
from transcripts.records import Budget
from transcripts.store import Archive
from transcripts.words import End

TALK = Canned(
    [
        b'data: {"model": "m", "choices": [{"index": 0, "delta": {"content": "Hm."}, '
        b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 1000, "completion_tokens": 0}}'
        b"\n\ndata: [DONE]\n\n"
    ]
)
ROSTER = """
[models.priced]
protocol = "openai"
model = "m"
base_url = "{url}/v1"
[models.priced.prices]
source = "a test"
date = 2026-01-01
rates = [{{ input = 1000.0, output = 1000.0 }}]
[models.unpriced]
protocol = "openai"
model = "m"
base_url = "{url}/v1"
"""
A_SESSION = 2.0
"""USD: two answers of a thousand tokens, each of a tenth of a cent."""


@pytest.fixture
def sweeping(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Run the sessions of a sweep of a model that says nothing useful, twice, and stops."""
    server = CannedServer(TALK)
    config = tmp_path / "models.toml"
    config.write_text(ROSTER.format(url=server.base_url()))

    def run(model: str = "priced", *, start: bool = True, **changes: object) -> Sweep:
        request = SweepRequest(
            archive=tmp_path / "archive",
            models=[model],
            deck="rounds",
            tasks=["kv-cache"],
            sandbox="process",
            concurrency=1,
            config=config,
            **changes,  # type: ignore[arg-type]
        )
        with prepared(request, Progress()) as sweep:
            if start:
                assert not sweep.run_sessions().defects
        return sweep

    yield run
    server.close()


def test_a_cap_stops_new_sessions_and_lets_running_ones_end(
    sweeping: Callable[..., Sweep], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweeping(attempts=5, max_cost_usd=3.0)
    assert [outcome.end for outcome in sweep.result.ended] == [End.NO_SUBMISSION] * 2
    assert sweep.result.not_started == 3
    assert sweep.purse.total_usd == pytest.approx(2 * A_SESSION)
    said = [line for line in capsys.readouterr().err.splitlines() if "--max-cost" in line]
    assert len(said) == 1
    assert "$4.00 spent of $3.00; nothing new is started" in said[0]


def test_earlier_runs_count_and_a_higher_cap_goes_on(sweeping: Callable[..., Sweep]) -> None:
    sweeping(attempts=2)
    capped = sweeping(attempts=3, max_cost_usd=4.0)
    assert capped.result.ended == []
    assert capped.result.not_started == 1
    assert len(sweeping(attempts=3, max_cost_usd=4.1).result.ended) == 1


def test_the_plan_says_what_is_done_and_what_the_rest_may_cost(
    sweeping: Callable[..., Sweep],
) -> None:
    first = "\n".join(sweeping(attempts=4, start=False).describe())
    assert "no history of priced" in first
    sweeping(attempts=1)
    lines = "\n".join(sweeping(attempts=4, max_cost_usd=9.0, start=False).describe())
    assert "1 cells, 4 attempts wanted, 1 done" in lines
    assert "about $6.00 for 3 (from 1 earlier ones)" in lines
    assert "spent so far $2.00 of at most $9.00" in lines
    assert "WARNING" not in lines


def test_unknown_prices_are_said_before_the_start(sweeping: Callable[..., Sweep]) -> None:
    sweeping("unpriced")
    lines = "\n".join(sweeping("unpriced", max_cost_usd=1.0, start=False).describe())
    assert "no price is known of unpriced: --max-cost cannot count them" in lines
    assert "1 attempts of unknown cost are not in the total" in lines


def test_an_interrupted_session_counts_what_its_replies_cost(
    sweeping: Callable[..., Sweep], tmp_path: Path
) -> None:
    """Its record knows no cost yet: a session is cut in the middle of a transcript."""
    sweeping(budget=Budget(max_steps=1))
    (folder,) = Archive.open(tmp_path / "archive").attempts()
    lines = list(folder.lines())
    other = Archive.open(tmp_path / "other", create=True)
    live = other.create(folder.record.model_copy(update={"outcome": None, "cost_usd": None}))
    (live.path / "transcript.jsonl").write_bytes(b"".join(lines[:-1]))
    assert spent_usd(live) == pytest.approx(A_SESSION / 2)
    purse = Purse(1.0)
    purse.remember([live])
    assert purse.is_empty
