"""Whole grades of well-meant submissions, and what `check` and `bench` tell."""

import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from graders import machine, performance, pipeline
from graders.base import GradeRequest
from graders.errors import GraderVoid
from graders.pipeline import RefereeGrader
from graders.recording import Gathered
from graders.scoring import score
from graders.timing import HOST_LEASE
from sandboxes.errors import LeaseBusy
from sandboxes.lease import lease
from tasks.loader import load_rubric, read_task
from transcripts.records import Lease
from transcripts.words import GradeResult


def request(task, kind, **options):
    return GradeRequest(task, task.folder / "submissions" / kind, **options)


@pytest.fixture(scope="module")
def oracle(task):
    return RefereeGrader().grade(request(task, "oracle", mode="isolated", tier="quick"))


def test_the_oracle_passes_with_every_shape_timed(task, oracle):
    assert oracle.result == "pass" and oracle.reason == ""
    assert [timing.shape for timing in oracle.timings] == [shape.name for shape in task.shapes]
    for timing in oracle.timings:
        assert timing.certified and timing.overhead_ms > 0
        assert timing.ci_low_ms <= timing.median_ms <= timing.ci_high_ms


def test_an_isolated_grade_measured_under_the_hosts_lease(oracle):
    assert oracle.lease is not None and oracle.lease.name == HOST_LEASE
    assert oracle.lease.held_s > 0


def test_a_grade_says_what_measured_it(task, oracle):
    assert oracle.task_digest == task.digest and oracle.isolation == "bubblewrap"
    digests = {oracle.checks_digest, oracle.timing_digest, oracle.toolchain_digest}
    assert len(digests) == 3
    assert oracle.device.measured_bandwidth_gbs and oracle.device.measured_gflops
    assert "--seed" in oracle.reproduce and oracle.seed in oracle.reproduce


def test_every_probe_of_the_oracle_passes(oracle):
    assert [check.check for check in oracle.checks if check.passed is not True] == []
    assert {"cache:pointer", "timing:late-write", "tamper:inputs"} <= {
        check.mechanism for check in oracle.checks
    }


def test_points_come_from_measured_items_and_the_rest_is_listed(task, oracle):
    scored = score(task, load_rubric(task), oracle)
    marks = {item.item: item.state for item in scored.items}
    assert marks == {"edges": "measured", "near-the-roof": "measured", "clarity": "not judged"}
    assert scored.points is not None and 75 <= scored.points <= 100
    assert scored.peak_fraction is not None and scored.peak_fraction > 0


def test_a_wrong_submission_is_told_where_and_is_not_timed(grade):
    found = grade("wrong", correctness_only=False)
    assert found.result == "wrong" and found.timings == ()
    worst = next(line for line in found.correctness if not line.passed)
    assert worst.worst_leaf == "y" and worst.worst_index is not None and worst.bad_elements > 0
    assert "is right: off by" in worst.detail and worst.seed


def test_a_wrong_submission_fails_no_probe_by_being_wrong(grade):
    checks = grade("wrong").checks
    assert [check.check for check in checks if check.passed is False] == []
    assert any(check.passed is None for check in checks)


def test_one_seed_gives_one_plan(grade):
    one, two, other = (grade("wrong", seed=seed) for seed in ("a", "a", "b"))
    assert one.correctness == two.correctness
    assert one.correctness != other.correctness


def test_nothing_handed_in_is_empty(grade):
    assert grade({}).result == "empty"


def test_files_without_the_interface_are_import_and_not_measurable(grade):
    found = grade({"other.py": "def something_else(x): return x\n"})
    assert found.result == "import" and "`row_sum`" in found.message
    assert found.items and not any(item.measurable for item in found.items)


def test_another_spelling_in_another_file_is_found(grade):
    found = grade({"mine.py": "def scaled_row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"})
    assert found.result == "pass"


def test_helpers_beside_the_entry_are_imported(grade):
    files = {
        "row_sum.py": "from parts.core import total\n\ndef row_sum(x, s): return s * total(x)\n",
        "parts/__init__.py": "",
        "parts/core.py": "def total(x):\n    return x.sum(axis=1)\n",
    }
    assert grade(files).result == "pass"


def test_c_compiled_at_import_is_graded_as_c(grade):
    text = r'''
import ctypes, pathlib, subprocess, tempfile
import numpy as np

SOURCE = """
void row_sum(const float *x, float *y, long rows, long n, float scale) {
    for (long r = 0; r < rows; r++) {
        double total = 0;
        for (long i = 0; i < n; i++) total += x[r * n + i];
        y[r] = scale * total;
    }
}
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "k.c").write_text(SOURCE)
build = ["gcc", "-O2", "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"]
subprocess.run(build, check=True)
library = ctypes.CDLL(str(folder / "k.so"))


def row_sum(x, scale):
    x = np.ascontiguousarray(x)
    y = np.empty(len(x), np.float32)
    pointers = (ctypes.c_void_p(a.ctypes.data) for a in (x, y))
    rows, n = x.shape
    library.row_sum(*pointers, ctypes.c_long(rows), ctypes.c_long(n), ctypes.c_float(scale))
    return y
'''
    found = grade(text)
    assert (found.result, found.language) == ("pass", "c"), found.message


def test_process_isolation_is_on_request_and_marked(grade):
    assert grade("oracle", isolation="process").isolation == "process"


def test_a_broken_reference_makes_the_grade_void(task, grade, tmp_path):
    copy = tmp_path / task.name
    shutil.copytree(task.folder, copy)
    (copy / "public" / "reference.py").write_text("raise OSError('gone')\n")
    broken = read_task(copy)
    found = RefereeGrader().grade(request(broken, "oracle", tier="quick"))
    assert found.result == "void" and "reference.py" in found.reason


def test_what_nobody_foresaw_makes_the_grade_void_and_says_so(task, tmp_path):
    copy = tmp_path / task.name
    shutil.copytree(task.folder, copy)
    reference = copy / "public" / "reference.py"
    reference.write_text(f"{reference.read_text()}\n\ndef make_inputs(shape, seed): return 1 / 0\n")
    ask = request(read_task(copy), "oracle", tier="quick")
    found = RefereeGrader().grade(ask)
    assert found.result == "void" and "ZeroDivisionError" in found.reason
    assert "defect of the grader" in found.message and "make_inputs" in found.reason
    for told in (RefereeGrader().check(ask), RefereeGrader().bench(ask)):
        assert told.result == "void" and "ZeroDivisionError" in told.text


@pytest.mark.parametrize("device", ["cuda", "GPU-0"])
def test_a_gpu_that_is_not_there_makes_the_grade_void(device, task, grade, monkeypatch, tmp_path):
    machine.gpus.cache_clear()
    monkeypatch.setenv("PATH", f"{_driver(tmp_path, [])}:{os.environ['PATH']}")
    found = grade("oracle", device=device)
    assert found.result == "void" and found.device.kind == "cuda"
    assert found.message == f"no GPU {device} on this machine (there: none)"
    told = RefereeGrader().check(request(task, "oracle", device=device))
    assert told.result == "void" and "there: none" in told.text


def test_one_gpu_is_meant_and_several_are_named(monkeypatch, tmp_path):
    for rows, word in (["GPU-1, A, 5"], "GPU-1"), (["GPU-1, A, 5", "GPU-2, B, 5"], None):
        machine.gpus.cache_clear()
        monkeypatch.setenv("PATH", str(_driver(tmp_path, rows)), prepend=":")
        if word:
            assert machine.resolved("cuda") == word
        else:
            assert machine.resolved("GPU-2") == "GPU-2"
            with pytest.raises(GraderVoid, match=r"GPU-1 \(A\), GPU-2 \(B\)"):
                machine.resolved("cuda")
    machine.gpus.cache_clear()


def _driver(folder, rows):
    """A folder with an `nvidia-smi` that prints these rows."""
    tool = folder / "nvidia-smi"
    tool.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    tool.chmod(0o755)
    return folder


def test_a_copy_is_called_by_the_name_that_a_person_gave_it(grade):
    assert " ./mine " in grade({"x.py": ""}, shown_as="./mine").reproduce


def test_a_machine_without_the_jail_makes_the_grade_void(grade, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = grade("oracle")
    assert found.result == "void" and "--sandbox process" in found.reason


def test_check_tells_shape_element_and_distance(task):
    good = RefereeGrader().check(request(task, "oracle"))
    bad = RefereeGrader().check(request(task, "wrong"))
    assert good.passed and good.text.count("ok ") == len(task.shapes) + len(task.smoke)
    assert not bad.passed and bad.result == "wrong"
    assert "worst at [" in bad.text and "make_inputs(shape, 1)" in bad.text


def test_check_shows_the_agent_its_own_traceback(submit, task):
    folder = submit({"row_sum.py": "def row_sum(x, scale):\n    return 1 / 0\n"})
    report = RefereeGrader().check(GradeRequest(task, folder))
    assert report.result == "crash"
    assert "ZeroDivisionError" in report.text and "row_sum.py:2" in report.text


def test_bench_times_every_scored_shape(task):
    report = RefereeGrader().bench(request(task, "oracle"))
    assert report.passed and set(report.median_ms) == {shape.name for shape in task.shapes}


@pytest.mark.parametrize("mode", ["in_run", "isolated"])
def test_a_core_that_others_took_spoils_isolated_figures_only(mode, grade, monkeypatch):
    for limit in ("CONTENDED", "SPOILT"):
        monkeypatch.setattr(performance, limit, -1.0)  # less than nothing is taken on any machine
    found = grade("oracle", mode=mode, correctness_only=False)
    if mode == "isolated":
        assert found.result == "void" and found.reason.startswith("contention: ")
        assert found.timings == ()
    else:
        told = next(check for check in found.checks if check.check == "contention")
        assert found.result == "pass" and told.passed is None and "others took" in told.detail


def test_while_an_isolated_grade_measures_nobody_else_gets_the_lease(task):
    ask = request(task, "oracle", mode="isolated", tier="quick")
    refused = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(RefereeGrader().grade, ask)
        while not running.done():
            try:
                with lease(HOST_LEASE, timeout_s=0):
                    pass
            except LeaseBusy:
                refused += 1
    assert refused > 0 and running.result().result == "pass"


def test_waiting_for_the_lease_is_not_the_submissions_time(task):
    """Others' grades may take longer than a submission has in all."""
    short = task.model_copy(update={"limits": task.limits.model_copy(update={"total_s": 12.0})})
    ask = replace(request(task, "oracle", mode="isolated", tier="quick"), task=short)
    with ThreadPoolExecutor(1) as pool:
        with lease(HOST_LEASE):
            running = pool.submit(RefereeGrader().grade, ask)
            time.sleep(15)
            assert not running.done()
        grade = running.result()
    assert grade.result == "pass", grade.message
    assert grade.lease is not None and grade.lease.waited_s > 1


def test_a_grade_holds_the_baseline_of_the_same_run_and_a_score_the_speed_up(task, oracle):
    assert all(timing.baseline_ms for timing in oracle.timings)
    twice = [t.model_copy(update={"baseline_ms": 2 * t.median_ms}) for t in oracle.timings]
    scored = score(task, None, oracle.model_copy(update={"timings": tuple(twice)}))
    assert scored.speedup == pytest.approx(2.0)
    assert oracle.phases.keys() >= {"build", "correctness", "probes", "performance"}


@pytest.mark.parametrize("shared", [True, False])
def test_a_grade_checks_beside_others_or_alone(task, shared):
    asked = request(task, "oracle", mode="isolated", device=f"GPU-{uuid.uuid4().hex}")
    with pipeline.on_device(asked, shared=shared) as measures:
        with ExitStack() as neighbour:
            if not shared:
                neighbour.enter_context(pytest.raises(LeaseBusy))
            neighbour.enter_context(lease(asked.device, timeout_s=0, shared=True))
        measures()
        with lease(asked.device, timeout_s=0):
            pass  # the turn of its own for measuring can be had


@pytest.mark.parametrize(
    ("word", "mode", "device", "measured", "again"),
    [
        ("memory", "isolated", "GPU-x", False, True),
        ("timeout", "isolated", "GPU-x", False, True),
        ("wrong", "isolated", "GPU-x", False, False),
        ("memory", "isolated", "GPU-x", True, False),
        ("memory", "in_run", "GPU-x", False, False),
        ("memory", "isolated", "cpu", False, False),
    ],
)
def test_what_a_neighbour_may_have_caused_is_tried_again_alone(
    task, word, mode, device, measured, again
):
    found = Gathered()
    found.fail(GradeResult(word), "why")
    found.lease = Lease(name=device, waited_s=0, held_s=1) if measured else None
    asked = request(task, "oracle", mode=mode, device=device)
    assert pipeline.may_be_anothers(asked, found) is again
