"""Batches: what is graded when, what is kept, and what a second run leaves."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from candidates import written
from graders import machine, qualification, remembered
from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from orchestrator.batch import LOOK_AHEAD, Job, NotReadable, run
from orchestrator.devices import NoSuchGpu, Unfit, asked_for, device_of, hardware_key
from orchestrator.errors import UserError
from orchestrator.foreign import Foreign, map_folder
from orchestrator.gradefile import opened
from orchestrator.gradeflow import Grading, Outcome
from orchestrator.gradeprogress import Reporter, duration
from orchestrator.grading import GradingOptions
from orchestrator.qualifying import NotQualified
from tasks import loader
from tasks.loader import load_task, read_task
from tasks.spec import Task
from transcripts.records import Grade
from transcripts.words import GradeResult

LIBRARY = Path(__file__).parents[1] / "graders" / "library"
SMALL = "scaled-row-sum"
HONEST = "def row_sum(x, scale):\n    return x.sum(axis=1) * scale\n"
FORBIDDEN = "import scipy\n" + HONEST
QUICK = GradingOptions(tier="quick", correctness_only=True)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests' own small tasks, found by name."""
    monkeypatch.setattr(loader, "LIBRARY", LIBRARY)
    return LIBRARY


@pytest.fixture
def row_sum() -> Task:
    return read_task(LIBRARY / SMALL)


@pytest.fixture
def grading() -> Callable[..., tuple[Grading, list[str]]]:
    def make(options: GradingOptions = QUICK) -> tuple[Grading, list[str]]:
        said: list[str] = []
        report = Reporter(said.append)
        return Grading(RefereeGrader(), options, report, threading.Event()), said

    return make


def into_file(root: Path, out: Path, grading: Grading) -> Outcome:
    with opened(out) as file:
        return grading.into_file(map_folder(root), file)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def static_job(task: Task, name: str, begun: list[str], kept: list[str]) -> Job:
    """A job whose grade takes no worker: its text already decides."""

    def stage(scratch: Path) -> GradeRequest:
        begun.append(name)
        folder = written(scratch / "files", {"row_sum.py": FORBIDDEN})
        return GradeRequest(task, folder, mode="isolated", tier="quick")

    return Job(name, stage, lambda _: kept.append(name))


def test_grades_are_kept_in_order_and_only_a_few_are_staged_ahead(row_sum: Task) -> None:
    begun: list[str] = []
    kept: list[str] = []
    ahead = []
    jobs = [static_job(row_sum, str(n), begun, kept) for n in range(8)]
    report = Reporter(lambda _: ahead.append(len(begun) - len(kept)))
    done = run(jobs, RefereeGrader(), report, threading.Event())
    assert kept == [job.name for job, _ in done] == [str(n) for n in range(8)]
    assert {grade.result for _, grade in done} == {GradeResult.FORBIDDEN}
    assert max(ahead) <= LOOK_AHEAD


def test_a_stop_ends_after_the_grade_that_runs_and_says_how_many_are_left(row_sum: Task) -> None:
    stop = threading.Event()
    said: list[str] = []
    kept: list[str] = []
    jobs = [static_job(row_sum, str(n), [], kept) for n in range(4)]
    jobs[1] = Job("1", jobs[1].stage, lambda _: stop.set())
    done = run(jobs, RefereeGrader(), Reporter(said.append), stop)
    assert [job.name for job, _ in done] == ["0", "1"]
    assert kept == ["0"]
    assert said[-1] == "stopped with 2 grades to go; run again to go on"


def test_what_cannot_be_taken_is_left_and_the_rest_goes_on(row_sum: Task) -> None:
    def refuse(_: Path) -> GradeRequest:
        raise NotReadable("it cannot be read: no permission")

    report = Reporter(lambda _: None)
    jobs = [Job("bad", refuse, lambda _: None), static_job(row_sum, "good", [], [])]
    done = run(jobs, RefereeGrader(), report, threading.Event())
    assert [job.name for job, _ in done] == ["good"]
    assert report.left == [("bad", "it cannot be read: no permission")]


def test_a_second_run_grades_what_is_new_changed_or_void(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    root, out = tmp_path / "root", tmp_path / "grades.jsonl"
    files = {f"{name}/{SMALL}/row_sum.py": FORBIDDEN + f"# {name}\n" for name in "abc"}
    written(root, files)
    first = into_file(root, out, grading()[0])
    assert len(first.graded) == 3
    assert into_file(root, out, grading()[0]).known == 3

    *before, last = lines(out)
    record = last["grade"]
    assert isinstance(record, dict)
    record["result"] = "void"
    out.write_text("".join(json.dumps(line) + "\n" for line in [*before, last]) + '{"torn": ')
    written(root, {f"a/{SMALL}/row_sum.py": FORBIDDEN, f"d/{SMALL}/row_sum.py": FORBIDDEN + "#\n"})
    again, said = grading()
    done = into_file(root, out, again)
    assert [name for name, _ in done.graded] == [f"{name}/{SMALL}" for name in "acd"]
    assert done.known == 1
    assert any("line 4 could not be read" in line for line in said)
    assert len(out.read_text().splitlines()) == 3 + 1 + 3


def test_another_tier_or_a_timing_that_is_missing_is_graded_again(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    root = written(tmp_path / "root", {f"{SMALL}/row_sum.py": HONEST})
    out = tmp_path / "grades.jsonl"
    (first,) = into_file(root, out, grading()[0]).graded
    assert first[1].result is GradeResult.PASS
    timed = grading(GradingOptions(tier="quick"))[0]
    (second,) = into_file(root, out, timed).graded
    assert second[1].timings or second[1].result is GradeResult.VOID
    (third,) = into_file(root, out, grading(GradingOptions(correctness_only=True))[0]).graded
    assert third[1].tier == "full"
    assert into_file(root, out, grading()[0]).known == 1


def test_a_replay_is_shown_and_not_kept(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    root = written(tmp_path / "root", {f"{SMALL}/row_sum.py": HONEST})
    out = tmp_path / "grades.jsonl"
    options = GradingOptions(tier="quick", seed="s", only="nominal/tiny")
    ((_, grade),) = into_file(root, out, grading(options)[0]).graded
    assert [row.shape for row in grade.correctness] == ["tiny"]
    assert out.read_text() == ""


def test_one_file_is_written_by_one_process(tmp_path: Path) -> None:
    out = tmp_path / "grades.jsonl"
    with opened(out), pytest.raises(UserError, match="another process"), opened(out):
        pass
    with pytest.raises(UserError, match="--out"), opened(tmp_path / "absent" / "grades.jsonl"):
        pass


def test_lines_of_a_grade_file_say_path_model_task_and_the_whole_grade(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    root = written(tmp_path / "root", {f"glm/{SMALL}/row_sum.py": FORBIDDEN})
    out = tmp_path / "grades.jsonl"
    into_file(root, out, grading()[0])
    (line,) = lines(out)
    grade = Grade.model_validate_json(json.dumps(line["grade"]))
    assert (line["path"], line["model"], line["task"]) == (f"glm/{SMALL}", "glm", SMALL)
    assert line["result"] == grade.result == "forbidden"
    assert str(root / "glm" / SMALL) in grade.reproduce


@pytest.mark.parametrize(
    ("results", "left", "batch", "code"),
    [
        ([], [], True, 0),
        (["pass", "wrong"], [], True, 0),
        (["wrong"], [], False, 1),
        (["pass"], [("a", "b")], True, 1),
        (["pass", "void"], [], True, 3),
        (["void"], [], False, 3),
    ],
)
def test_exit_codes(
    row_sum: Task, results: list[str], left: list[tuple[str, str]], batch: bool, code: int
) -> None:
    outcome = Outcome(left=left, is_batch=batch)
    if results:
        (job,) = [static_job(row_sum, "x", [], [])]
        ((_, grade),) = run([job], RefereeGrader(), Reporter(lambda _: None), threading.Event())
        outcome.graded = [
            (word, grade.model_copy(update={"result": GradeResult(word)})) for word in results
        ]
    assert outcome.exit_code == code
    outcome.stopped = True
    assert outcome.exit_code == 130


def test_a_batch_begins_with_a_test_of_the_machine_and_records_it(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = written(tmp_path / "root", {f"{SMALL}/row_sum.py": FORBIDDEN})
    out = tmp_path / "grades.jsonl"
    said: list[str] = []
    careful = Grading(
        RefereeGrader(), QUICK, Reporter(said.append), threading.Event(), qualify=True
    )
    done = into_file(root, out, careful)
    assert said[0].startswith("cpu qualifies: numpy ")
    first, second = lines(out)
    assert first == {"qualification": json.loads(json.dumps(done.qualification[0]))}
    assert second["result"] == "forbidden"
    times = remembered.load(qualification.FILE)
    remembered.store(qualification.FILE, {key: [1e-6] * 3 for key in times})
    written(root, {f"{SMALL}/row_sum.py": FORBIDDEN + "# other\n"})
    with pytest.raises(NotQualified, match="--no-qualify"):
        into_file(root, out, careful)
    assert len(lines(out)) == 2


# --- devices ----------------------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Answer for GPUs as their driver's tool does: `uuid, name, driver version` a line."""

    def answer(*rows: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        machine.gpus.cache_clear()

    yield answer
    machine.gpus.cache_clear()


TWO = ("GPU-1a, NVIDIA H200, 580", "GPU-2b, NVIDIA L40S, 580")


def test_several_gpus_are_listed_and_none_is_taken_silently(driver: Callable[..., None]) -> None:
    driver(*TWO)
    with pytest.raises(UserError, match=r"(?s)2 GPUs.*--gpu GPU-1a  \(NVIDIA H200\).*GPU-2b"):
        asked_for("", "cuda")
    only_gpu = load_task("fused-softmax-topk").model_copy(update={"devices": ("cuda",)})
    with pytest.raises(UserError, match="GPU-2b"):
        device_of(only_gpu, "", "cpu")


def test_a_gpu_is_named_by_how_its_uuid_begins(driver: Callable[..., None]) -> None:
    driver(*TWO)
    assert asked_for("gpu-2", "") == "GPU-2b"
    assert asked_for("", "GPU-1a") == "GPU-1a"
    for unclear in ("GPU-", "GPU-3"):
        with pytest.raises(NoSuchGpu, match="GPU-1a"):
            asked_for(unclear, "")
    with pytest.raises(UserError, match="twice"):
        asked_for("GPU-1a", "cpu")


def test_the_only_gpu_is_taken_and_said(driver: Callable[..., None]) -> None:
    driver(TWO[0])
    only_gpu = load_task("fused-softmax-topk").model_copy(update={"devices": ("cuda",)})
    device, said = device_of(only_gpu, "", "cpu")
    assert device == "GPU-1a"
    assert "GPU-1a" in said
    driver()
    with pytest.raises(NoSuchGpu, match="no GPU"):
        device_of(only_gpu, "", "cpu")


def test_a_task_for_both_is_graded_on_the_decks_hardware_or_where_it_is_said(
    driver: Callable[..., None],
) -> None:
    driver(*TWO)
    both = load_task("fused-softmax-topk")
    device, said = device_of(both, "", "cpu")
    assert device == "cpu"
    assert "canonical" in said
    assert device_of(both, "GPU-1a", "cpu") == ("GPU-1a", "")
    with pytest.raises(UserError, match="--device cpu"):
        device_of(both, "", "H200_SXM")
    with pytest.raises(Unfit, match="cpu only"):
        device_of(load_task("kv-cache"), "GPU-1a", "cpu")


def test_a_grade_of_another_gpu_model_is_no_grade_of_this_one(driver: Callable[..., None]) -> None:
    driver(*TWO)
    options = GradingOptions(tier="quick", correctness_only=True)
    grade = RefereeGrader().grade(
        GradeRequest(load_task("kv-cache"), Path("/nowhere"), mode="isolated", tier="quick")
    )
    h200 = grade.device.model_copy(update={"kind": "cuda", "hardware": hardware_key("GPU-1a")})
    measured = {"device": h200, "result": GradeResult.WRONG}
    on_gpu = grade.model_copy(update=measured)
    assert options.satisfied_by(on_gpu, "GPU-1a")
    assert not options.satisfied_by(on_gpu, "GPU-2b")
    assert not options.satisfied_by(on_gpu, "cpu")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (200, "3 min"), (7900, "2 h 12 min")]
)
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_line_of_a_grade_says_how_long_the_rest_takes(row_sum: Task) -> None:
    said: list[str] = []
    jobs = [static_job(row_sum, str(n), [], []) for n in range(2)]
    run(jobs, RefereeGrader(), Reporter(said.append), threading.Event())
    assert said[0].startswith("grade 1/2: 0: forbidden in ")
    assert said[0].endswith(" s left")
    assert not said[1].endswith(" left")


def test_an_unnamed_submission_is_left_with_the_reason(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    files = {f"{SMALL}/row_sum.py": FORBIDDEN, "odd/a.py": "x = 1\n"}
    done = into_file(written(tmp_path / "root", files), tmp_path / "out", grading()[0])
    assert [name for name, _ in done.left] == ["odd"]
    assert done.exit_code == 1


def test_a_submission_that_vanished_before_its_turn_is_left(
    library: Path, grading: Callable[..., tuple[Grading, list[str]]], tmp_path: Path
) -> None:
    root = written(tmp_path / "root", {f"{SMALL}/row_sum.py": FORBIDDEN})
    layout = map_folder(root)
    gone = Foreign(root / "gone", "gone", SMALL, "", "its name")
    layout.found.append(gone)
    with opened(tmp_path / "out") as out:
        done = grading()[0].into_file(layout, out)
    assert [name for name, _ in done.left] == ["gone"]
    assert len(done.graded) == 1
