"""What a sweep shows: 256 sessions on a terminal of any size, plain lines, lines of JSON."""

import io
import json
from collections.abc import Callable

import pytest
from rich.console import Console

from orchestrator.agents.base import Standing
from orchestrator.liveview import LiveView, duration, relevant
from orchestrator.models.accounts import Account
from orchestrator.models.base import Conversation, ModelReply
from orchestrator.progress import Progress, mean_ms
from orchestrator.sessionview import Row
from transcripts.events import ToolCall
from transcripts.records import Usage

Render = Callable[[Progress, int, int], list[str]]


def standing(step: int, cost: float | None = 0.5, tool: str = "bash") -> Standing:
    call = ToolCall(id="c", name=tool, arguments="{}")
    reply = ModelReply("", (call,), "tool_calls", Usage(), "m", 0.1)
    usage = Usage(input_tokens=1000 * step, output_tokens=234)
    return Standing(Conversation("", [reply]), step=step, usage=usage, cost_usd=cost)


def running(count: int) -> Progress:
    """A sweep of 300 attempts with ``count`` sessions at work."""
    progress = Progress(mode="live")
    progress.total = 300
    for number in range(count):
        name = f"s{number}"
        progress.begin(name, f"model-{number % 4}", f"task-{number:03}", resumed=number % 8 == 0)
        progress.step(name, standing(number % 50))
        progress.bench(name, 1.25 + number)
    return progress


def render(progress: Progress, width: int, height: int) -> list[str]:
    screen = Console(
        file=io.StringIO(), width=width, height=height, record=True, force_terminal=True
    )
    screen.print(LiveView(progress.view), height=height, end="")
    return [line for line in screen.export_text().splitlines() if line.strip()]


def test_a_large_terminal_shows_a_row_a_session() -> None:
    lines = render(running(256), 160, 300)
    assert lines[0].startswith("0/300 attempts, 256 running, 6,")
    assert len(lines) == 258  # totals, the header, the sessions
    assert sum("task-" in line for line in lines) == 256
    (row,) = [line for line in lines if "task-042" in line]
    words = ["model-2", "task-042", "running", "bash", "-", "42", "42,234", "$0.500", "43.25"]
    assert row.split() == words


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 10), (40, 5)])
def test_a_small_terminal_shows_what_fits_and_counts_the_rest(width: int, height: int) -> None:
    lines = render(running(256), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    shown = sum("model-" in line for line in lines)
    assert shown >= 1
    (rest,) = [line for line in lines if line.startswith("and ")]
    hidden = int(rest.split()[1])
    assert shown + hidden == 256
    if width >= 80:
        counts = [int(word) for word in rest.split(":")[1].split() if word.isdigit()]
        assert sum(counts) == hidden
        assert "running" in rest
        assert "resumed" in rest


def test_the_quiet_ones_are_shown_first_then_the_farthest() -> None:
    rows = [Row("m", f"t{n}", "running", n, step=n, moved_at=1000.0) for n in range(100)]
    rows[7].moved_at = 100.0
    rows[9].moved_at = 200.0
    shown = relevant(rows, 4, now=1001.0)
    assert [row.task for row in shown] == ["t7", "t9", "t98", "t99"]


def test_totals_keep_what_ended_and_say_what_is_unknown() -> None:
    progress = running(3)
    progress.step("s0", standing(10, cost=None))
    progress.end("s0", "submitted", finished=True)
    progress.end("s1", "infra_fault", finished=False)
    (title, *_) = render(progress, 200, 20)
    assert title.startswith("1/300 attempts, 1 to be resumed, 1 running, 13 steps, ")
    assert "$1.00 and 1 unknown" in title
    assert "ETA unknown" not in title


def test_accounts_that_were_refused_are_said() -> None:
    progress = running(1)
    account = Account("api.example (KEY)", start=9)
    progress.accounts = (account,)
    assert any("api.example (KEY): 0 of 9 calls" in line for line in render(progress, 120, 24))


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    progress = Progress(mode="live")
    progress.begin("s", "[red]evil\x1b[2J", "task", resumed=False)
    text = "\n".join(render(progress, 120, 24))
    assert "\x1b" not in text
    assert "[red]evil\\x1b[2J" in text


def test_the_live_view_runs_on_a_screen_and_leaves_nothing_behind() -> None:
    out = io.StringIO()
    screen = Console(file=out, width=100, height=20, force_terminal=True)
    progress = running(256)
    with progress.shown(screen):
        pass
    assert "256 running" in out.getvalue()


def test_without_a_terminal_there_is_a_line_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.begin("s", "m", "t", resumed=True)
    progress.step("s", standing(3))
    progress.end("s", "submitted", finished=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "m x t: resumes",
        "m x t: submitted after 3 steps",
    ]


def test_for_machines_every_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(mode="json")
    progress.total = 1
    progress.say("plan: 1 cell")
    progress.begin("s", "m", "t", resumed=False, gpu="GPU-1")
    progress.bench("s", 2.5)
    progress.step("s", standing(3, cost=None))
    progress.end("s", "submitted", finished=True)
    read = capsys.readouterr()
    events = [json.loads(line) for line in read.err.splitlines()]
    assert read.out == ""
    assert [event["event"] for event in events] == ["note", "starts", "step", "ends"]
    assert (
        events[2].items()
        >= {
            "session": "s",
            "step": 3,
            "tool": "bash",
            "tokens": 3234,
            "cost_usd": None,
            "best_ms": 2.5,
            "gpu": "GPU-1",
        }.items()
    )
    assert events[3].items() >= {"end": "submitted", "finished": True, "done": 1}.items()


def test_durations_are_short() -> None:
    assert [duration(s) for s in (0, 89, 90, 3000, 5400, 11_100)] == [
        *("0 s", "89 s", "2 min", "50 min", "1 h 30", "3 h 05")
    ]


def test_a_bench_is_one_figure() -> None:
    assert mean_ms({"a": 1.0, "b": 4.0}) == pytest.approx(2.0)
    assert mean_ms({}) is None
