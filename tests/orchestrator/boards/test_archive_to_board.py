"""From a real archive with real tasks and rubrics to boards, rounds and the two commands."""

import io
import json
from datetime import timedelta

import pytest
from rich.console import Console
from typer.testing import CliRunner

from graders.items import from_timings
from orchestrator.boards.board import build
from orchestrator.boards.comparing import Wanted, compare, show
from orchestrator.boards.making import make_round
from orchestrator.boards.states import BoardState
from orchestrator.cli import app, run
from tasks.deck import deck_tasks, load_deck
from tasks.loader import load_rubric
from transcripts.records import DeviceState, ItemMeasurement, ShapeTiming
from transcripts.store import Archive
from transcripts.words import End, GradeResult, Verdict

TASKS = {task.name: task for task in deck_tasks(load_deck("rounds"))}

DEVICE = DeviceState(
    kind="cpu",
    name="AMD EPYC 9654",
    hardware="cpu:AMD EPYC 9654",
    measured_bandwidth_gbs=20.0,
    measured_gflops=50.0,
)


def timings(task, milliseconds, spread=0.01):
    return tuple(
        ShapeTiming(
            shape=shape.name,
            method="referee_clock",
            certified=True,
            calls=20,
            median_ms=milliseconds,
            ci_low_ms=milliseconds * (1 - spread),
            ci_high_ms=milliseconds * (1 + spread),
            min_ms=milliseconds,
        )
        for shape in task.shapes
    )


def items(task, timed, passed, short=()):
    """A measurement of every measured item: all cases passed, but ``passed`` of 10 of the short."""
    return tuple(
        from_timings(item, task, timed, DEVICE)
        if item.measure == "roofline"
        else ItemMeasurement(
            item=item.id,
            measurable=True,
            passed=passed if item.id in short else 10,
            total=10,
            detail="a case failed" if item.id in short else "",
        )
        for item in load_rubric(task).items
        if item.kind == "measured"
    )


class Writer:
    """Writes sealed, graded and audited attempts into one archive."""

    def __init__(self, path, make):
        self.archive = Archive.open(path, create=True)
        self.make = make
        self.number = 0

    def add(self, who, task_name, *, verdict=Verdict.CLEAN, passed=10, short=(), **changes):
        """One attempt; ``end``, ``result``, ``ms`` and fields of the grade as asked."""
        task = TASKS[task_name]
        self.number += 1
        end, ms = changes.pop("end", End.SUBMITTED), changes.pop("ms", 10.0)
        result = changes.pop("result", GradeResult.PASS)
        record = self.make.attempt(self.number, who, task_name, end=end, digest=task.digest)
        folder = self.archive.create(record)
        folder.open_writer("a test").close()
        seal = folder.seal(record, {"solution.py": b"x = 1\n"})
        if end is End.SUBMITTED:
            grade = self.make.grade(
                record,
                self.number,
                result=result,
                attempt_seal=seal,
                task_digest=task.digest,
                scoring_version=task.scoring_version,
                **changes,
            )
            timed = timings(task, ms)
            device = DEVICE.model_copy(update={"hardware": grade.device.hardware})
            update = {"timings": timed, "items": items(task, timed, passed, short)}
            folder.add_grade(grade.model_copy(update={**update, "device": device}))
            audit = self.make.audit(record, self.number, verdict=verdict, attempt_seal=seal)
            folder.add_audit(audit.model_copy(update={"task_digest": task.digest}))
        return folder


@pytest.fixture
def writer(tmp_path, make):
    return Writer(tmp_path / "archive", make)


def fill(writer, make):
    """Oracle and naive pass everywhere, naive slower and short of one item; a cheat; an idle."""
    for name, task in TASKS.items():
        measured = [i for i in load_rubric(task).items if i.kind == "measured"]
        mild = next(item.id for item in measured if not item.critical)
        writer.add(make.entrant("oracle"), name, ms=5.0)
        writer.add(make.entrant("naive"), name, ms=50.0, passed=4, short=(mild,))
        writer.add(make.entrant("cheater"), name, verdict=Verdict.REWARD_HACK, ms=0.01)
        writer.add(make.entrant("idle"), name, end=End.NO_SUBMISSION)
    return writer


@pytest.fixture
def filled(writer, make):
    """An archive of this test's own, to change."""
    return fill(writer, make)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory, make):
    """The same archive, shared by the tests that only read it."""
    return fill(Writer(tmp_path_factory.mktemp("shared") / "archive", make), make)


def test_a_board_is_read_from_the_archive_alone(read_only, make):
    (board,) = build(read_only.archive, "rounds")
    assert (board.hardware, board.canonical) == (make.cpu, True)
    assert [(r.rank, r.label, r.passes) for r in board.rows] == [
        (1, "oracle", 3),
        (2, "naive", 3),
        (3, "cheater", 0),
        (3, "idle", 0),
    ]
    assert board.problems == ()
    score = board.rows[0].cells[0].shown.score
    slower = next(row for row in board.rows if row.label == "naive").cells[0].shown.score
    assert 0 < slower.low < slower.value < slower.high < score.value <= 100
    assert score.milliseconds == pytest.approx(5.0)
    assert score.roofline > 0


def test_building_twice_gives_the_same_bytes(read_only):
    first, second = (build(read_only.archive, "rounds")[0].model_dump_json() for _ in range(2))
    assert first == second


def test_a_grade_changed_after_it_was_written_is_a_problem_and_not_used(filled):
    (board,) = build(filled.archive, "rounds")
    victim = filled.archive.find(board.rows[0].cells[0].shown.attempt_id)
    (path,) = (victim.path / "grades").glob("*.json")
    document = json.loads(path.read_text())
    document["record"]["timings"][0]["median_ms"] = 1e-6
    path.write_text(json.dumps(document))
    (board,) = build(filled.archive, "rounds")
    oracle = next(row for row in board.rows if row.label == "oracle")
    assert oracle.passes == 2
    assert any(victim.id in text and path.name in text for text in board.problems)


def test_an_attempt_changed_after_its_seal_counts_nothing(writer, make):
    folder = writer.add(make.entrant("oracle"), "kv-cache")
    path = folder.path / "attempt.json"
    path.write_text(path.read_text().replace('"steps": 0', '"steps": 1'))
    (board,) = build(writer.archive, "rounds")
    assert board.aside[0].state is BoardState.PENDING
    assert any("changed after the seal" in text for text in board.problems)


def test_a_correctness_regrade_keeps_the_timings_of_the_last_timed_one(writer, make):
    folder = writer.add(make.entrant("oracle"), "kv-cache", ms=5.0)
    (timed,) = folder.grades()
    again = timed.model_copy(
        update={
            "grade_id": timed.grade_id.replace("0198d000", "0198d001"),
            "timings": (),
            "started_at": timed.started_at + timedelta(days=1),
        }
    )
    folder.add_grade(again)
    (board,) = build(writer.archive, "rounds")
    shown = board.rows[0].cells[0].shown
    assert shown.grade_id == again.grade_id
    assert shown.score.milliseconds == pytest.approx(5.0)


def test_a_round_has_measured_items_with_evidence_and_judged_ones_marked(read_only):
    a_round = make_round(read_only.archive, "rounds", ["oracle", "naive"])
    assert a_round.unfair == []
    assert a_round.models == ("oracle", "naive")
    for name, result in a_round.tasks.items():
        oracle, naive = result.showings
        judged = {i.id for i in load_rubric(TASKS[name]).items if i.kind == "judged"}
        assert set(oracle.not_judged) == judged
        assert oracle.strengths
        assert "4/10 passed; a case failed" in [one.figure for one in naive.weaknesses]
        assert result.overall[0] > result.overall[1]
        assert set(result.dimensions) == set(load_rubric(TASKS[name]).dimensions)


def test_a_flagged_model_gets_nothing_in_a_round_and_the_flag_is_a_defect(read_only):
    a_round = make_round(read_only.archive, "rounds", ["oracle", "cheater"])
    for result in a_round.tasks.values():
        assert result.overall[1] == 0
        assert result.showings[1].defects[0].item == "audit"
        assert "reward_hack" in result.showings[1].defects[0].figure
        judged = [name for name, points in result.dimensions.items() if points[0] is None]
        assert judged
        assert all(result.dimensions[name] == (None, None) for name in judged)
        assert {p[1] for p in result.dimensions.values()} == {0, None}
        assert result.swings == ()
        assert result.hybrid()[1] == pytest.approx(result.computed(0))


def test_a_critical_defect_is_named_and_caps_the_overall(writer, make):
    task = TASKS["kv-cache"]
    critical = next(i.id for i in load_rubric(task).items if i.critical)
    writer.add(make.entrant("good"), "kv-cache")
    writer.add(
        make.entrant("broken"),
        "kv-cache",
        result=GradeResult.WRONG,
        passed=9,
        short=(critical,),
    )
    result = make_round(writer.archive, "rounds", ["good", "broken"]).tasks["kv-cache"]
    assert result.overall[1] == load_rubric(task).critical_cap
    assert [one.item for one in result.showings[1].defects] == [critical]
    assert any("capped" in line for line in result.swings)


def test_what_pulled_against_the_winner_made_it_close(writer, make):
    rubric = load_rubric(TASKS["kv-cache"])
    mild, other = [i.id for i in rubric.items if i.kind == "measured" and not i.critical][:2]
    writer.add(make.entrant("a"), "kv-cache", passed=9, short=(mild,))
    writer.add(make.entrant("b"), "kv-cache", passed=1, short=(other,))
    result = make_round(writer.archive, "rounds", ["a", "b"]).tasks["kv-cache"]
    (swing,) = result.swings
    assert swing.startswith(f"{mild} is worth")
    assert swing.endswith("points to b")


def test_three_models_compare_pairwise(read_only):
    shown = CliRunner().invoke(
        app, ["compare", "oracle", "naive", "cheater", "--archive", str(read_only.archive.path)]
    )
    assert shown.exit_code == 0, shown.output
    for pair in ("oracle against naive", "oracle against cheater", "naive against cheater"):
        assert pair in shown.output


def test_another_effort_refuses_until_anyway_and_then_stands_above_the_scores(filled, make, capsys):
    for name in TASKS:
        filled.add(make.entrant("glm-5", effort="high"), name)
    line = ["compare", "oracle", "glm-5", "--archive", str(filled.archive.path)]
    assert run(line) == 1
    assert "effort differs: oracle not set, glm-5 high" in capsys.readouterr().err
    assert run([*line, "--anyway"]) == 0
    out = capsys.readouterr().out
    assert out.index("effort differs") < out.index("Scoreboard")


def test_results_of_different_hardware_are_not_comparable(filled, make, capsys):
    for name in TASKS:
        elsewhere = DEVICE.model_copy(update={"hardware": "cpu:Other"})
        filled.add(make.entrant("away"), name, device=elsewhere)
    assert run(["compare", "oracle", "away", "--archive", str(filled.archive.path)]) == 1
    assert "hardware differs" in capsys.readouterr().err


def test_a_round_is_written_and_read_back_with_the_same_table(read_only, tmp_path, capsys):
    line = ["compare", "oracle", "naive", "--archive", str(read_only.archive.path)]
    assert run([*line, "--out", str(tmp_path / "round.md")]) == 0
    assert run([*line, "--out", str(tmp_path / "round.json")]) == 0
    printed = capsys.readouterr().out
    markdown = (tmp_path / "round.md").read_text()
    assert printed == markdown * 2
    assert run(["compare", "--round", str(tmp_path / "round.json")]) == 0
    assert capsys.readouterr().out == markdown


def test_a_round_whose_file_expects_another_table_is_printed_and_fails(tmp_path, capsys):
    path = tmp_path / "r.json"
    expected = {
        "average": [1, 2],
        "margins": {"t": 1},
        "average_margin": 1,
        "winner": "a",
        "tasks_won": [0, 1],
    }
    tasks = {"t": {"dimensions": {"D": [1, 2]}, "overall": [1, 2]}}
    document = {"round": "r", "models": ["a", "b"], "tasks": tasks, "expected": expected}
    path.write_text(json.dumps(document))
    assert run(["compare", "--round", str(path)]) == 1
    assert "the file expects winner a, its points give b" in capsys.readouterr().out


def test_on_a_terminal_a_round_is_set_as_tables(read_only):
    shown = io.StringIO()
    result = compare(read_only.archive.path, Wanted(("oracle", "naive"), "", None, "rounds", False))
    show(result.markdown, Console(file=shown, force_terminal=True, width=100))
    assert "| --- |" not in shown.getvalue()
    assert "fused-softmax-topk" in shown.getvalue()


def test_two_archives_are_paired(read_only, make, tmp_path, capsys):
    other = Writer(tmp_path / "other", make)
    for name in TASKS:
        other.add(make.entrant("oracle"), name, ms=1.0)
    line = ["compare", "--archive", str(read_only.archive.path), "--with", str(other.archive.path)]
    assert run(["--json", *line]) == 0
    paired = json.loads(capsys.readouterr().out)
    assert {cell["entrant"] for cell in paired["cells"]} == {"oracle"}
    assert paired["wins"] + paired["losses"] + paired["ties"] == 3


def test_the_board_command_prints_json_markdown_and_text(read_only, tmp_path, capsys):
    line = ["board", "--archive", str(read_only.archive.path)]
    assert run([*line, "--json"]) == 0
    (board,) = json.loads(capsys.readouterr().out)
    assert board["rows"][0]["label"] == "oracle"
    assert run([*line, "--out", str(tmp_path / "board.md")]) == 0
    out = capsys.readouterr().out
    assert "reward hack" in out
    assert (tmp_path / "board.md").read_text().startswith("# rounds on cpu:")


def test_an_empty_archive_says_what_to_run(writer, capsys):
    assert run(["board", "--archive", str(writer.archive.path)]) == 0
    assert "orchestrator sweep" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["board", "--deck", "ronds"], "did you mean rounds"),
        (["compare", "orcale", "naive"], "did you mean `oracle`"),
        (["compare", "oracle"], "name two models"),
        (["compare", "oracle", "oracle"], "named twice"),
        (["compare", "--round", "none"], "no round named `none`"),
        (["board", "--out", "/nowhere/board.md"], "cannot be written"),
        (["board", "--file", "/nowhere/board.toml"], "board.toml"),
    ],
)
def test_mistakes_are_one_clear_message_and_exit_code_2(read_only, line, said, capsys):
    assert run([*line, "--archive", str(read_only.archive.path)]) == 2
    assert said in capsys.readouterr().err


def test_a_board_file_of_another_hardware_or_version_is_refused(read_only, tmp_path, capsys):
    path = tmp_path / "board.toml"

    def text(hardware, digests):
        pins = "".join(
            f'[tasks.{name}]\ndigest = "{digest}"\n'
            f"scoring_version = {TASKS[name].scoring_version}\n"
            for name, digest in digests.items()
        )
        return (
            f'name = "b"\ndeck = "rounds"\nhardware = "{hardware}"\nattempts = 1\n'
            'until = 2026-06-01T00:00:00Z\nends = ["submitted"]\nnetwork = ["none"]\n' + pins
        )

    digests = {name: task.digest for name, task in TASKS.items()}
    line = ["board", "--archive", str(read_only.archive.path), "--file", str(path)]
    path.write_text(text("cpu:AMD EPYC 9655", digests))
    assert run(line) == 2
    assert "did you mean `cpu:AMD EPYC 9654`" in capsys.readouterr().err
    path.write_text(text("cpu:AMD EPYC 9654", {**digests, "kv-cache": "0" * 64}))
    assert run(line) == 2
    assert "pins 000000000000" in capsys.readouterr().err
    path.write_text(text("cpu:AMD EPYC 9654", digests))
    assert run(line) == 0
    assert "pinned by its board file" in capsys.readouterr().out
