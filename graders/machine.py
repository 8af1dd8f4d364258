"""The machine under a grade: who it is, how busy it is, and what one of its cores reaches."""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from graders import launch, processes
from graders.errors import GraderVoid, SubmissionFailed
from graders.gpu_rules import Readings
from graders.referee import WorkerSession
from tasks import hardware
from transcripts.records import DeviceState, Fingerprint

PACKAGES = Path(__file__).parents[1]
_OURS = ("graders", "sandboxes", "tasks", "transcripts", "orchestrator")
NVCC = "/usr/local/cuda/bin/nvcc"  # where NVIDIA's packages put it, on no path by default
_CEILING_MEMORY = 2 << 30
_BUSY = 1.5  # runnable processes a core, above which a measurement waits
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Ceilings:
    """What one pinned core, or a GPU, reaches, measured in a worker of our own."""

    bandwidth_gbs: float
    gflops: float  # float32 matrix product
    gflops_by_dtype: Mapping[str, float] = field(default_factory=dict)  # of other dtypes


_ceilings: dict[str, Ceilings] = {}
_measuring = threading.Lock()


def ceilings(isolation: str) -> Ceilings:
    """Measured once a process. Raises GraderVoid."""
    with _measuring:
        if isolation not in _ceilings:
            _ceilings[isolation] = _measure(isolation)
        return _ceilings[isolation]


def _measure(isolation: str) -> Ceilings:
    adapter = Path(__file__).parent / "trusted_ceiling.py"
    with launch.world(adapter, None, isolation) as place:
        try:
            with WorkerSession(place, _CEILING_MEMORY, core=worker_core()) as session:
                session.build(None, ("bandwidth", "gflops"), "cpu", 30)
                session.setup({}, 60)
                answer = session.call({}, 1 << 12, 60)
        except SubmissionFailed as error:
            raise GraderVoid(f"the ceilings of this machine cannot be measured: {error}") from error
    return Ceilings(float(answer.outputs["bandwidth"]), float(answer.outputs["gflops"]))


def worker_core() -> int:
    """The core that timed workers run on: the last of ours."""
    return max(processes.OUR_CORES)


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Keep the calling thread on these cores."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
        yield
    finally:
        os.sched_setaffinity(0, before)


def apart_from_worker() -> AbstractContextManager[None]:
    """Keep the calling thread off the worker's core, where there are two."""
    return on_cores(processes.OUR_CORES - {worker_core()} or processes.OUR_CORES)


def load_per_core() -> float:
    """1-minute load average divided by cores."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def runnable_per_core() -> float:
    """Processes that want to run now, this one not counted, divided by cores."""
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
    return (int(running) - 1) / (os.cpu_count() or 1)


def wait_until_idle() -> float:
    """Wait a little for other work to end; returns the seconds waited. Never fails."""
    started = time.monotonic()
    while runnable_per_core() > _BUSY and time.monotonic() - started < _PATIENCE_S:
        time.sleep(0.1)
    return time.monotonic() - started


def device_state(
    device: str, reached: Ceilings | None, load_before: float, readings: Readings | None = None
) -> DeviceState:
    """The device and what is known of its peaks; by the name asked for where there is none."""
    gpu = _found(device)
    name = cpu_name() if device == "cpu" else gpu.name if gpu else device
    readings = readings or Readings()
    return DeviceState(
        kind="cpu" if device == "cpu" else "cuda",
        name=name,
        uuid=gpu.uuid if gpu else None,
        hardware=f"cpu:{name}" if device == "cpu" else hardware.match(name) or name,
        measured_bandwidth_gbs=reached.bandwidth_gbs if reached else None,
        measured_gflops=reached.gflops if reached else None,
        measured_gflops_by_dtype=dict(reached.gflops_by_dtype) if reached else {},
        load_before=load_before,
        load_after=load_per_core(),
        before=readings.before,
        after=readings.after,
    )


def _product_version() -> str:
    """The installed version; a checkout that is run uninstalled has none to tell."""
    try:
        return importlib.metadata.version("kernel-orchestrator")
    except importlib.metadata.PackageNotFoundError:
        return "uninstalled"


def fingerprint(
    isolation: str, device: str, more_versions: Mapping[str, str] | None = None
) -> Fingerprint:
    """What measured: code, machine, device and versions."""
    gpu = _found(device)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Fingerprint(
        product_version=_product_version(),
        code_digest=code_digest(*_OURS),
        python=platform.python_version(),
        platform=platform.platform(),
        kernel=platform.release(),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        memory_bytes=memory,
        host=hashlib.sha256(platform.node().encode()).hexdigest()[:16],
        sandbox=isolation,
        device=gpu.name if gpu else device,
        device_uuid=gpu.uuid if gpu else None,
        driver=gpu.driver if gpu else None,
        versions={**dict(versions(device)), **(more_versions or {})},
    )


@cache
def versions(device: str = "cpu") -> tuple[tuple[str, str], ...]:
    """Tools that a grade on this device depends on, by name."""
    found = {"python": platform.python_version(), "numpy": np.__version__}
    tools = {"gcc": "-dumpfullversion", "bwrap": "--version"}
    if device != "cpu":
        tools[shutil.which("nvcc") or NVCC] = "--version"
        for package in ("torch", "triton"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
    for tool, argument in tools.items():
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [tool, argument], capture_output=True, text=True, timeout=10, check=True
            )
            found[Path(tool).name] = done.stdout.strip().rpartition("\n")[2]
    return tuple(found.items())


@cache
def code_digest(*parts: str) -> str:
    """sha256 over the Python and CUDA files of packages, or over single files, of this product."""
    total = hashlib.sha256()
    for part in parts:
        path = PACKAGES / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.*")):
            if file.suffix in (".py", ".cu") and "submissions" not in file.parts:
                total.update(f"{file.relative_to(PACKAGES)}\0".encode() + file.read_bytes())
    return total.hexdigest()


@cache
def cpu_name() -> str:
    """The model name that the kernel reports."""
    return _proc_cpuinfo("model name") or platform.processor() or platform.machine()


def _proc_cpuinfo(key: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as its driver names it."""

    uuid: str
    name: str
    driver: str
    capability: str = ""  # compute capability, "9.0"
    memory_mib: str = ""


@cache
def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this host; none where no driver answers."""
    names = ("uuid", "name", "driver_version")
    rows = _driver_says((*names, "compute_cap", "memory.total")) or _driver_says(names)
    return tuple(Gpu(*row) for row in rows)


def _driver_says(fields: Sequence[str]) -> list[list[str]]:
    """A row a GPU; none where the driver does not answer, or does not know a field."""
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(fields)]


def _found(device: str) -> Gpu | None:
    return next((gpu for gpu in gpus() if gpu.uuid == device), None)


def resolved(device: str) -> str:
    """``cpu``, or the UUID of the GPU meant; ``cuda`` is the only one. Raises GraderVoid."""
    if device == "cpu":
        return device
    there = {gpu.uuid: gpu.name for gpu in gpus()}
    if device in there:
        return device
    if device == "cuda" and len(there) == 1:
        return next(iter(there))
    named = ", ".join(f"{uuid} ({name})" for uuid, name in there.items()) or "none"
    if device == "cuda" and there:
        raise GraderVoid(f"several GPUs on this machine, say which by its UUID: {named}")
    raise GraderVoid(f"no GPU {device} on this machine (there: {named})")
