"""What a worker can read, write and reach: the contract of its world."""

import hashlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from graders import launch, machine, processes
from graders.errors import GraderVoid
from graders.referee import WorkerSession
from graders.worker.wire import MAX_HEADER_BYTES
from sandboxes import cgroup
from sandboxes.cgroup import Cgroup

ROOT = Path(__file__).parents[2]

SPY = '''
import hashlib, json, os, socket, stat
import numpy as np


def setup(entries, params):
    return params


def readable(sizes):
    """sha256 of every regular file of one of these sizes, and all paths that name us."""
    digests, named = {}, []
    for folder, folders, files in os.walk("/"):
        if folder in ("/proc", "/sys"):
            folders[:] = []
        for name in files:
            path = os.path.join(folder, name)
            try:
                info = os.stat(path)
                if stat.S_ISREG(info.st_mode) and info.st_size in sizes:
                    with open(path, "rb") as file:
                        digests[path] = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                continue
            if any(part in path for part in ("/graders/", "/sealed/", "/submissions/", "rubric")):
                named.append(path)
    return digests, named


def writable():
    found = []
    for folder, folders, _ in os.walk("/"):
        if folder in ("/proc", "/sys", "/dev"):
            folders[:] = []
        elif os.access(folder, os.W_OK):
            found.append(folder)
    return found


def connects():
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except OSError as error:
        return type(error).__name__
    return "connected"


def run(entries, state, inputs):
    digests, named = readable(set(inputs["sizes"].tolist()))
    modules = []
    for name in ("graders", "orchestrator", "tasks", "pydantic", "pip"):
        try:
            __import__(name)
        except ImportError:
            continue
        modules.append(name)
    found = {
        "digests": digests,
        "named": named,
        "writable": writable(),
        "modules": modules,
        "env": dict(os.environ),
        "uid": os.getuid(),
        "interfaces": socket.if_nameindex(),
        "connects": connects(),
        "processes": [name for name in os.listdir("/proc") if name.isdigit()],
        "capabilities": open("/proc/self/status").read(),
    }
    return {"found": np.frombuffer(json.dumps(found).encode(), np.uint8)}
'''


def secrets_of_ours():
    """Everything of the product that no submission may read."""
    files = [*ROOT.glob("graders/**/*.py"), *ROOT.glob("orchestrator/**/*.py")]
    files += [p for p in ROOT.glob("tasks/library/**/*") if "adapter.py" not in p.name]
    shown = {file.name for file in launch.worker_files()}
    return [p for p in files if p.is_file() and p.stat().st_size and p.name not in shown]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spy")
    (folder / "adapter.py").write_text(SPY)
    sizes = np.unique([path.stat().st_size for path in secrets_of_ours()])
    with (
        launch.world(folder / "adapter.py", None, "bubblewrap") as place,
        WorkerSession(place, 1 << 30) as session,
    ):
        session.build(None, ("found",), "cpu", 10)
        session.setup({}, 10)
        answer = session.call({"sizes": sizes}, 8 << 20, 60)
        return json.loads(answer.outputs["found"].tobytes())


def test_no_file_of_ours_is_readable(world):
    ours = {hashlib.sha256(p.read_bytes()).hexdigest(): str(p) for p in secrets_of_ours()}
    assert {path: ours[d] for path, d in world["digests"].items() if d in ours} == {}
    assert [path for path in world["named"] if not path.startswith(("/usr/", "/opt/site/"))] == []


def test_none_of_our_packages_is_importable(world):
    assert world["modules"] == []


def test_only_scratch_is_writable(world):
    assert {path.split("/")[1] for path in world["writable"]} <= {"tmp"}


def test_there_is_no_network(world):
    assert [name for _, name in world["interfaces"] if name != "lo"] == []
    assert world["connects"] != "connected"


def test_the_worker_is_nobody_and_alone(world):
    assert world["uid"] not in (0, os.getuid()) or os.getuid() != 0
    assert "CapEff:\t0000000000000000" in world["capabilities"]
    assert len(world["processes"]) <= 3  # the jail's own, and itself


def test_the_environment_is_scrubbed(world):
    allowed = {"PATH", "PYTHONPATH", "GRADING_MARK", "HOME", "TMPDIR", "PWD", "LC_CTYPE"}
    allowed |= {"XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"}
    allowed |= {"TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"}
    assert {n for n in world["env"] if not n.endswith("_NUM_THREADS")} <= allowed


def test_the_ceilings_are_measured_once_a_process():
    first = machine.ceilings("bubblewrap")
    assert first.bandwidth_gbs > 0.5 and first.gflops > 0.5
    assert machine.ceilings("bubblewrap") is first


BUSY = """
import time

def setup(entries, params): return None

def run(entries, state, inputs):
    started = time.thread_time()
    while time.thread_time() < started + 0.1: pass
    return inputs
"""


def test_what_others_take_of_the_core_of_a_call_is_measured(tmp_path):
    (tmp_path / "adapter.py").write_text(BUSY)
    core = machine.worker_core()
    burn = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with (
        launch.world(tmp_path / "adapter.py", None, "bubblewrap") as place,
        WorkerSession(place, 1 << 30, core=core) as session,
    ):
        session.build(None, ("x",), "cpu", 10)
        session.setup({}, 10)
        with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            answer = session.timed_call({"x": np.zeros(4)}, 1 << 12, 60)
            other.kill()
    elapsed = answer.elapsed_ns / 1e9
    assert answer.lost_s > 0.02 and answer.others_s > 0.02
    assert answer.lost_s < elapsed - 0.09  # what it computed itself is not lost


@pytest.fixture
def group():
    """A cgroup without caps, for where controllers are not ours to hand out."""
    mounted = cgroup._mount_point()
    if mounted is None or not os.access(mounted, os.W_OK):
        pytest.skip("no cgroup v2 hierarchy that we may write to")
    path = mounted / f"kernel-orchestrator-test-{uuid.uuid4().hex}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made in {mounted}: {error}")
    yield Cgroup(path)
    Cgroup(path).remove()


@pytest.mark.parametrize("isolation", ["bubblewrap", "process"])
def test_all_of_a_worker_is_in_its_group_and_ends_with_it(isolation, group, tmp_path, monkeypatch):
    monkeypatch.setattr("sandboxes.cgroup.make", lambda name, limits: group)
    (tmp_path / "adapter.py").write_text(BUSY)
    with (
        launch.world(tmp_path / "adapter.py", None, isolation) as place,
        WorkerSession(place, 1 << 30) as session,
    ):
        session.build(None, ("x",), "cpu", 10)
        inside = {int(pid) for pid in group.procs.read_text().split()}
        assert inside == set(processes.below(session._root)) and session.pid in inside
    assert not group.path.exists()


def test_a_question_too_large_is_our_fault_and_ends_nothing(tmp_path):
    (tmp_path / "adapter.py").write_text("")
    with (
        launch.world(tmp_path / "adapter.py", None, "process") as place,
        WorkerSession(place, 1 << 30) as session,
    ):
        with pytest.raises(GraderVoid, match="`build` is too large"):
            session.ask({"op": "build", "file": "x" * MAX_HEADER_BYTES}, 10)
        session.build(None, ("x",), "cpu", 10)
