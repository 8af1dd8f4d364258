"""Ledgers: what a worker claims, what follows from it, agreement of phases, kernels taken out."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graders.base import GradeRequest
from graders.candidate import Candidate, Draw, candidate_of
from graders.decoys import noop_kernels
from graders.errors import SubmissionFailed
from graders.kernel_names import Authored
from graders.ledger import (
    LAUNCHES,
    NoLedger,
    ProfiledLine,
    agreement,
    authored_by,
    claimed,
    decide,
    ledger_of,
    take,
)
from graders.survey import Survey, conclude, is_profiled_here, survey, unseen
from graders.worker import cuda_text, noops, profiling
from tasks.spec import Task
from transcripts.records import KernelLine, Ledger
from transcripts.words import GradeResult

Submit = Callable[[dict[str, str]], Path]
AUTHORED = Authored({"mine": "triton", "theirs": "cuda_raw"})
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >()"


# --- what a worker sends -----------------------------------------------------------------------


@dataclass
class Event:
    """As torch's ``_KinetoEvent`` shows itself; ``activity`` None is an older torch's."""

    text: str
    ns: int = 1000
    correlation: int = 0
    activity: str | None = "kernel"
    device: str = "DeviceType.CUDA"
    annotation: bool = False

    def __post_init__(self) -> None:
        if self.activity is not None:
            self.activity_type = lambda: self.activity

    def name(self) -> str:
        return self.text

    def duration_ns(self) -> int:
        return self.ns

    def correlation_id(self) -> int:
        return self.correlation

    def device_type(self) -> str:
        return self.device

    def is_user_annotation(self) -> bool:
        return self.annotation


def tallied(*traces: list[Event]) -> dict[str, Any]:
    tally = profiling.Tally()
    for events in traces:
        tally.add(events)
    return tally.answer()


NEW = [
    Event("cudaLaunchKernel", 9000, 1, "cuda_runtime", "DeviceType.CPU"),
    Event("mine", 5000, 1),
    Event("cudaGraphLaunch", 9000, 2, "cuda_runtime", "DeviceType.CPU"),
    Event("mine", 3000, 2),
    Event("theirs(float*)", 2000, 2),
    Event("Memcpy DtoD (Device -> Device)", 500, 3, "gpu_memcpy"),
    Event("Memset (Device)", 400, 4, "gpu_memset"),
    Event("a range", 99_000, 0, "gpu_user_annotation", annotation=True),
    Event("Context Sync", 99_000, 0, "cuda_sync"),
]
OLD = [replace(event, activity=None) for event in NEW]


@pytest.mark.parametrize("events", [NEW, OLD], ids=["with activities", "without"])
def test_a_tally_counts_kernels_copies_and_graphs_and_nothing_else(events: list[Event]) -> None:
    answer = tallied(events, events)
    assert answer["rest"] == [0, 0]
    assert answer["lines"] == [
        {"name": "mine", "what": "kernel", "launches": 2, "ns": 10_000, "graph": False},
        {"name": "mine", "what": "kernel", "launches": 2, "ns": 6000, "graph": True},
        {"name": "theirs(float*)", "what": "kernel", "launches": 2, "ns": 4000, "graph": True},
        {
            "name": "Memcpy DtoD (Device -> Device)",
            "what": "memcpy",
            "launches": 2,
            "ns": 1000,
            "graph": False,
        },
        {"name": "Memset (Device)", "what": "memset", "launches": 2, "ns": 800, "graph": False},
    ]


def test_an_answer_is_bounded_and_says_what_it_leaves_out() -> None:
    answer = tallied([Event(f"k{n}" + "x" * 5000, n + 1) for n in range(500)])
    assert len(answer["lines"]) == profiling.MOST_LINES
    assert max(len(line["name"]) for line in answer["lines"]) == profiling.MOST_NAME
    assert answer["rest"] == [300, sum(range(1, 301))]
    lines = claimed({"calls": 1, **answer}, 1)
    assert lines[-1].launches == 300 and lines[0].ns == 500


LINE = {"name": "mine", "what": "kernel", "launches": 3, "ns": 3000, "graph": False}
GOOD = {"calls": 3, "refused": "", "lines": [LINE], "rest": [0, 0]}


def test_a_claim_of_the_right_form_is_read() -> None:
    assert claimed(GOOD, 3) == [ProfiledLine("mine", "kernel", 3, 3000, False)]


FORGED = [
    {"lines": None},
    {"lines": [LINE] * 201},
    {"calls": 4},
    {"rest": [0]},
    {"rest": [0, float("nan")]},
    {"lines": [{**LINE, "more": 1}]},
    {"lines": [["mine"]]},
    {"lines": [{**LINE, "name": "x" * 301}]},
    {"lines": [{**LINE, "name": 3}]},
    {"lines": [{**LINE, "what": "nap"}]},
    {"lines": [{**LINE, "graph": 1}]},
    {"lines": [{**LINE, "launches": True}]},
    {"lines": [{**LINE, "launches": 0}]},
    {"lines": [{**LINE, "launches": -1}]},
    {"lines": [{**LINE, "ns": 1.5}]},
    {"lines": [{**LINE, "ns": 1 << 60}]},
]


@pytest.mark.parametrize("change", FORGED, ids=[str(change)[:50] for change in FORGED])
def test_a_claim_of_another_form_is_tampering(change: dict[str, Any]) -> None:
    with pytest.raises(SubmissionFailed) as failed:
        claimed({**GOOD, **change}, 3)
    assert failed.value.result is GradeResult.TAMPERED


def test_a_refused_profiler_is_no_failure() -> None:
    with pytest.raises(NoLedger, match="CUPTI"):
        claimed({"ok": "profile", "refused": "CUPTI is not permitted\x1b[2J"}, 3)


# --- what follows ------------------------------------------------------------------------------


def ledger(*lines: tuple[str, int, int], phase: Any = "timed", shape: str = "s") -> Ledger:
    """Of one call: (name, launches, ns)."""
    profiled = [
        ProfiledLine(name, "memcpy" if name.startswith("Memcpy") else "kernel", launches, ns, False)
        for name, launches, ns in lines
    ]
    return ledger_of(profiled, 1, AUTHORED, phase, shape)


def test_a_ledger_has_shares_of_the_gpu_time_and_launches_a_call() -> None:
    profiled = [
        ProfiledLine("mine", "kernel", 6, 3000, True),
        ProfiledLine("Memcpy DtoD (Device -> Device)", "memcpy", 3, 1000, False),
    ]
    found = ledger_of(profiled, 3, AUTHORED, "check", "s")
    assert found.launches == 3.0 and found.language == "triton"
    assert found.kernels[0] == KernelLine(
        name="mine", kind="triton", launches=2.0, gpu_share=0.75, in_graph=True
    )
    assert found.kernels[1].kind == "memory"


LANGUAGES = [
    ([("mine", 1, 60), (ELEMENTWISE, 1, 40)], "triton", "triton"),
    ([("mine", 1, 50), ("nvjet_tst_64x8", 1, 50)], "eager", "triton"),
    ([("mine", 1, 45), ("nvjet_tst_64x8", 1, 55)], "triton", "library"),
    ([("mine", 1, 30), ("nvjet_tst_64x8", 1, 20), (ELEMENTWISE, 1, 50)], "triton", "eager"),
    ([("mine", 1, 30), ("theirs", 1, 31), (ELEMENTWISE, 1, 39)], "triton", "cuda_raw"),
    ([("mine", 1, 1), ("Memcpy DtoD (Device -> Device)", 1, 99)], "eager", "triton"),
    ([("nvjet_tst_64x8", 1, 1)], "cuda_raw", "library"),
    ([("who_knows", 1, 1)], "cuda_raw", "cuda_raw"),
    ([("who_knows", 1, 30), ("nvjet_tst_64x8", 1, 70)], "cuda_raw", "library"),
    ([], "triton", "eager"),
    ([], "numpy", "numpy"),
]


@pytest.mark.parametrize(("lines", "spoken", "language"), LANGUAGES)
def test_the_language_is_that_of_the_work(lines: Any, spoken: str, language: str) -> None:
    assert decide([ledger(*lines)], AUTHORED, spoken) == language


def test_each_shape_counts_alike_for_the_language() -> None:
    long = ledger(("nvjet_tst_64x8", 1, 1_000_000), shape="long")
    short = [ledger(("mine", 1, 10), shape=f"short {n}") for n in range(2)]
    assert decide([long, *short], AUTHORED, None) == "triton"


def test_phases_with_the_same_kernels_agree() -> None:
    check = ledger(("void a::theirs<3>(int)", 2, 70), (ELEMENTWISE, 1, 30), phase="check")
    timed = ledger(("void a::theirs<4>(int)", 2, 65), (ELEMENTWISE, 1, 35), phase="timed")
    found = agreement([check, timed])
    assert found.passed is True and found.mechanism == "ledger:phases"
    assert set(found.evidence) == {"s"}


DIFFERENT = [
    ([("mine", 1, 9)], [("theirs", 1, 9)], "`mine` does most of check, and nothing of timed"),
    ([("mine", 1, 9)], [("mine", 1, 1), (ELEMENTWISE, 1, 9)], "`triton` has 100% of the GPU time"),
    ([("mine", 9, 9)], [("mine", 1, 9)], "9 kernels a call in check, 1 in timed"),
    ([("nvjet_a", 1, 9)], [("mine", 1, 9)], "`mine` does most of timed, and nothing of check"),
]


@pytest.mark.parametrize(("check", "timed", "told"), DIFFERENT)
def test_other_work_in_another_phase_is_told(check: Any, timed: Any, told: str) -> None:
    found = agreement([ledger(*check, phase="check"), ledger(*timed, phase="timed")])
    assert found.passed is False and told in found.detail


def test_a_graph_that_is_captured_after_a_few_calls_may_copy_its_inputs() -> None:
    check = ledger(("mine", 1, 90), phase="check")
    timed = ledger(("mine", 1, 90), ("Memcpy DtoD (Device -> Device)", 1, 20), phase="timed")
    assert agreement([check, timed]).passed is True


def test_another_shape_may_be_other_work() -> None:
    small = ledger(("mine", 1, 9), phase="check", shape="small")
    large = ledger(("theirs", 5, 9), phase="timed", shape="large")
    assert agreement([small, large]).passed is None


# --- a worker ----------------------------------------------------------------------------------


@contextmanager
def candidate(task: Task, folder: Path) -> Iterator[Candidate]:
    with candidate_of(GradeRequest(task, folder)) as found:
        yield found


NUMPY = "def row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"


def test_a_worker_without_a_gpu_says_so_and_goes_on(task: Task, submit: Submit) -> None:
    with candidate(task, submit({"row_sum.py": NUMPY})) as one, one.session() as session:
        draw = one.draw(task.smoke[0], 1)
        with pytest.raises(NoLedger, match="no GPU"):
            take(session, one, draw, "check", "tiny")
        session.setup(draw.params, 5)
        answer = session.call(draw.calls[0], 1 << 12, 5)
        assert answer.outputs["y"].shape == (3,)


def test_weights_travel_with_the_profile_and_leave_the_session_whole(
    task: Task, submit: Submit
) -> None:
    with candidate(task, submit({"row_sum.py": NUMPY})) as one, one.session() as session:
        draw = one.draw(task.smoke[0], 1)
        heavy = Draw({**draw.params, "weights": {"w": np.ones((4, 4))}}, draw.calls)
        with pytest.raises(NoLedger, match="no GPU"):
            take(session, one, heavy, "check", "tiny")
        session.setup(draw.params, 5)
        answer = session.call(draw.calls[0], 1 << 12, 5)
        assert answer.outputs["y"].shape == (3,)


@pytest.mark.parametrize(("ours", "passed"), [(True, False), (False, None)])
def test_who_breaks_the_count_of_launches_does_not_pass_for_want_of_one(
    task: Task, ours: bool, passed: bool | None
) -> None:
    why = "the profiled calls failed: it looked for a profiler"
    (told,) = unseen(task, Survey("triton"), why, ours).checks
    assert (told.check, told.passed) == ("kernels by phase", passed) and why in told.detail
    counted = task.model_copy(update={"most_launches": 1})
    checks = unseen(counted, Survey("triton"), why, ours).checks
    assert [(c.check, c.passed) for c in checks[1:]] == [(LAUNCHES, passed)]


def test_whether_our_own_worker_can_be_profiled_is_tried(task: Task, submit: Submit) -> None:
    with candidate(task, submit({"row_sum.py": NUMPY})) as one:
        assert is_profiled_here(one) is False  # there is no GPU


def test_on_a_cpu_nothing_is_surveyed(task: Task, submit: Submit) -> None:
    with candidate(task, submit({"row_sum.py": NUMPY})) as one:
        found = survey(one, "seed", "full", "c")
    assert (found.language, found.ledgers, found.checks) == ("c", [], [])


# --- kernels taken out -------------------------------------------------------------------------

# What nvcc would compile is compiled by a C compiler here: the same file, the same way of starting
# a compiler, and a kernel that does the work or does it for show.
KERNEL = """
#define __global__
__global__ void row_sums(const float *x, float *y, long rows, long n, float scale)
{
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long i = 0; i < n; i++)
            sum += x[r * n + i];
        y[r] = (float)(scale * sum);
    }
}
"""
BUILT = """
import ctypes, os, shutil, subprocess, tempfile
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(tempfile.mkdtemp(), "k.so")
CC = shutil.which("cc") or shutil.which("gcc") or "cc"
subprocess.run(
    [CC, "-shared", "-fPIC", "-O1", "-x", "c", "-o", OUT, os.path.join(HERE, "kernel.cu")],
    check=True,
)
kernel = ctypes.CDLL(OUT).row_sums


def row_sum(x, scale):
    x = np.ascontiguousarray(x, np.float32)
    y = np.zeros(x.shape[0], np.float32)
    at = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    kernel(*at, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]), ctypes.c_float(scale))
    return RESULT
"""
HONEST = {"kernel.cu": KERNEL, "row_sum.py": BUILT.replace("RESULT", "y")}
DECOY = {"kernel.cu": KERNEL, "row_sum.py": BUILT.replace("RESULT", "scale * x.sum(axis=1)")}
ELSEWHERE = {"row_sum.py": NUMPY}
NOOPS = [(HONEST, True), (DECOY, False), (ELSEWHERE, None)]


@pytest.mark.parametrize(("files", "passed"), NOOPS, ids=["honest", "decoy", "not reached"])
def test_outputs_must_need_the_kernels(
    files: dict[str, str], passed: bool | None, task: Task, submit: Submit
) -> None:
    kernels = (KernelLine(name="row_sums", kind="cuda_raw", launches=1, gpu_share=1),)
    seen = Ledger(phase="timed", shape="tall", launches=1, kernels=kernels)
    with candidate(task, submit(files)) as one:
        found = noop_kernels(one, "seed", seen, task.shapes[1])
    assert found.passed is passed, found
    assert found.mechanism == "language:decoy-kernel"


@pytest.mark.parametrize(("files", "language"), [(HONEST, "cuda_raw"), (DECOY, "eager")])
def test_kernels_for_show_give_no_language(
    files: dict[str, str], language: str, task: Task, submit: Submit
) -> None:
    lines = [("row_sums(float const*, float*, long, long, float)", 1, 80), (ELEMENTWISE, 1, 20)]
    with candidate(task, submit(files)) as one:
        profiled = [ProfiledLine(name, "kernel", n, ns, False) for name, n, ns in lines]
        phases: tuple[Any, ...] = ("check", "timed")
        ledgers = [ledger_of(profiled, 1, authored_by(one), phase, "tall") for phase in phases]
        found = conclude(one, "seed", [*task.shapes], Survey("numpy", ledgers))
    assert found.language == language
    assert [check.passed for check in found.checks] == [True, language == "cuda_raw"]


def test_work_of_unknown_names_is_the_sources_language_and_said_to_be_in_doubt(
    task: Task, submit: Submit
) -> None:
    ledgers = [ledger(("who_knows", 1, 9), phase="timed", shape="tall")]
    with candidate(task, submit(HONEST)) as one:
        found = conclude(one, "seed", [*task.shapes], Survey("cuda_raw", ledgers))
    assert found.language == "cuda_raw"
    assert found.checks[-1].passed is None and "unknown names" in found.checks[-1].detail


def test_nothing_is_taken_out_where_authored_kernels_do_little(task: Task, submit: Submit) -> None:
    seen = ledger(("mine", 1, 10), ("nvjet_tst_64x8", 1, 90), shape="tall")
    with candidate(task, submit(HONEST)) as one:
        assert noop_kernels(one, "seed", seen, task.shapes[1]).passed is None


@pytest.fixture
def scanning() -> Iterator[None]:
    """As in a worker: the scanner is given, and nothing has been taken out yet."""
    noops.scanner.append(cuda_text)
    noops.taken.clear()
    yield
    noops.scanner.clear()


@pytest.mark.usefixtures("scanning")
def test_sources_of_extensions_arrive_without_bodies(tmp_path: Path) -> None:
    file = tmp_path / "in_a_file.cu"
    file.write_text("__global__ void in_a_file(int *x) { *x = 1; }")
    seen: dict[str, Any] = {}

    def load_inline(name: str, cpp_sources: Any, cuda_sources: Any = None, verbose: int = 0) -> str:
        seen.update(cpp=cpp_sources, cuda=cuda_sources)
        return name

    def load(name: str, sources: Any, verbose: int = 0) -> str:
        return Path(sources[0]).read_text()

    extensions = SimpleNamespace(load_inline=load_inline, load=load)
    noops.disarm_extensions(extensions)
    source = "int f() { return 1; }\n__global__ void inline_one(int *x) { *x = 1; }"
    assert extensions.load_inline("m", "int f();", cuda_sources=[source]) == "m"
    assert seen == {"cpp": "int f();", "cuda": [source.replace(" *x = 1; ", "")]}
    assert extensions.load("m", [str(file)]) == "__global__ void in_a_file(int *x) {}"
    assert noops.report()["taken"] == {"inline_one": 1, "in_a_file": 1}


@pytest.mark.usefixtures("scanning")
def test_a_compiler_that_is_started_gets_files_without_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", subprocess.Popen.__init__)
    (tmp_path / "k.cu").write_text("__global__ void k(int *x) { *x = 1; }")
    noops.disarm_compilers()
    done = subprocess.run(["cat", "k.cu"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "__global__ void k(int *x) {}"
    assert subprocess.run("true 'k.cu'", shell=True, check=True).returncode == 0


@pytest.mark.usefixtures("scanning")
def test_a_triton_launch_compiles_and_launches_nothing() -> None:
    ran: list[bool] = []

    class JITFunction:
        def __init__(self, fn: Callable[..., None]) -> None:
            self.fn = fn

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
            ran.append(warmup)
            return "compiled"

    noops.disarm_triton(SimpleNamespace(JITFunction=JITFunction))

    def kernel() -> None: ...

    assert JITFunction(kernel).run(1, grid=(1,), warmup=False, N=3) == "compiled"
    assert JITFunction(kernel).run(1, grid=(1,), warmup=True) == "compiled"
    assert ran == [True, True] and noops.report()["taken"] == {"kernel": 1}
