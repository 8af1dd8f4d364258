"""A submission is built once; what its compilers leave serves each later worker, as a copy."""

import os
import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from graders import surroundings
from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.errors import GraderVoid, SubmissionFailed
from graders.worker import caches
from sandboxes.base import Mount
from sandboxes.toolchain import Toolchain

COMPILES = """
import ctypes, os, subprocess
import numpy as np

FOLDER = os.environ["TORCH_EXTENSIONS_DIR"] + "/row_sum"
SOURCE = '''
void row_sum(const float *x, float *y, long rows, long n, float scale) {
    for (long r = 0; r < rows; r++) {
        double total = 0;
        for (long i = 0; i < n; i++) total += x[r * n + i];
        y[r] = (float) (scale * total);
    }
}
'''
if not os.path.exists(FOLDER + "/row_sum.so"):
    os.makedirs(FOLDER)
    with open(FOLDER + "/row_sum.c", "w") as file:
        file.write(SOURCE)
    subprocess.run(
        ["gcc", "-O2", "-shared", "-fPIC", "row_sum.c", "-o", "row_sum.so"], cwd=FOLDER, check=True
    )
    with open(FOLDER + "/builds", "a") as file:
        file.write(".")
LIBRARY = ctypes.CDLL(FOLDER + "/row_sum.so")


def row_sum(x, scale):
    x = np.ascontiguousarray(x, np.float32)
    y = np.empty(len(x), np.float32)
    LIBRARY.row_sum(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data),
        ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]), ctypes.c_float(scale),
    )
    return y
"""

TELLS = """
import os
import numpy as np

FOLDER = os.environ["XDG_CACHE_HOME"]
FOUND = sorted(os.listdir(FOLDER))
IMPORT


def row_sum(x, scale):
    told = "/".join(FOUND).encode()
    return np.frombuffer(told, np.uint8)
"""


@pytest.fixture
def candidate(task, submit):
    @contextmanager
    def make(text, isolation="auto"):
        folder = submit({"row_sum.py": text})
        with candidate_of(GradeRequest(task, folder, isolation=isolation)) as found:
            yield found

    return make


def told_by(found):
    """What a fresh worker of a `TELLS` found in its caches when it was imported."""
    with found.session() as session:
        session.setup({"scale": 1.0}, 3)
        answer = session.call({"x": np.zeros((1, 1), np.float32)}, 1 << 16, 3)
        return [name for name in answer.outputs["y"].tobytes().decode().split("/") if name]


def tells(imported):
    return TELLS.replace("IMPORT", textwrap.dedent(imported))


@pytest.mark.parametrize("isolation", ["bubblewrap", "process"])
def test_a_grade_compiles_once(isolation, grade):
    """Each import leaves a mark: a worker must find the builder's and its own, no others."""
    counted = "open(FOLDER + '/builds').read() == '.' and open(FOLDER + '/imports').read() == 'xx'"
    text = COMPILES.replace("    return y\n", f"    return y if {counted} else -y\n")
    text += "\n\nwith open(FOLDER + '/imports', 'a') as file:\n    file.write('x')\n"
    assert grade(text, isolation=isolation, correctness_only=False).result == "pass"


@pytest.mark.parametrize("isolation", ["bubblewrap", "process"])
def test_a_later_worker_has_a_copy_that_no_other_worker_sees(isolation, candidate):
    writes = "open(f'{FOLDER}/{len(FOUND)}-{os.getpid()}', 'w').close()"
    with candidate(tells(writes), isolation) as found:
        first, second = told_by(found), told_by(found)
    assert len(first) == 1 and first == second


def test_nothing_is_kept_between_submissions(candidate):
    writes = tells("open(f'{FOLDER}/kept', 'w').close()")
    with candidate(writes) as found:
        assert told_by(found) == ["kept"]
    with candidate(tells("")) as found:
        assert told_by(found) == []


def test_links_are_not_kept(candidate):
    text = """
    os.symlink('/etc/passwd', FOLDER + '/link') if not FOUND else None
    os.symlink('/etc', FOLDER + '/folder') if not FOUND else None
    os.mkfifo(FOLDER + '/fifo') if not FOUND else None
    open(f'{FOLDER}/file', 'w').close()
    """
    with candidate(tells(text)) as found:
        assert told_by(found) == ["file"]


@pytest.mark.parametrize(
    "flood",
    [
        "for n in range(6000): open(f'{FOLDER}/{n}', 'w').close()",
        "open(f'{FOLDER}/large', 'wb').truncate(600 << 20)",
    ],
)
def test_what_is_beyond_the_bounds_is_not_kept(flood, candidate):
    with candidate(tells(flood)) as found:
        found.build()
        assert found.built.pack is None
        assert told_by(found) == []


def test_a_failed_build_is_not_tried_again(candidate):
    text = (
        "import subprocess\nsubprocess.run(['gcc', 'none.c'], check=True)\n\ndef row_sum(): ...\n"
    )
    with candidate(text) as found:
        with pytest.raises(SubmissionFailed) as first:
            found.session()
        with pytest.raises(SubmissionFailed) as second:
            found.session()
    assert first.value.result == second.value.result == "build"
    assert "none.c" in str(first.value) and str(first.value) == str(second.value)


FORGED = """
import gc, os
for thing in gc.get_objects():
    if type(thing).__name__ == "Worker":
        wire = thing.wire
        def forged(pipe, header, send=wire.send_answer):
            send(pipe, {**header, "size": SIZE} if header.get("ok") == "pack" else header)
        wire.send_answer = forged

def row_sum(x, scale):
    return scale * x.sum(axis=1)
"""


@pytest.mark.parametrize("size", ["-1", "True", "1e9", "10**30", "'x'", "None", "[8]"])
def test_a_forged_size_keeps_nothing(size, candidate):
    with candidate(FORGED.replace("SIZE", size)) as found:
        found.build()
        assert found.built.pack is None


def test_a_forged_pack_harms_only_its_own_submission(candidate):
    """A pack of zeros has no index."""
    with (
        candidate(FORGED.replace("SIZE", "4096")) as found,
        pytest.raises(SubmissionFailed) as failed,
    ):
        found.session()
    assert failed.value.result == "import"


def test_a_build_beside_the_sources_is_told_where_to_build_instead(candidate):
    text = """
import os, subprocess
HERE = os.path.dirname(os.path.abspath(__file__))
with open(HERE + "/row_sum.c", "w") as file: file.write("")

def row_sum(x, scale): ...
"""
    compiles = text.replace(
        'with open(HERE + "/row_sum.c", "w") as file: file.write("")',
        "subprocess.run(['gcc', '-shared', '-x', 'c', '/dev/null', '-o', HERE + '/row_sum.so'], "
        "check=True)",
    )
    for what in (text, compiles):
        with candidate(what) as found, pytest.raises(SubmissionFailed) as failed:
            found.session()
        assert failed.value.result == "build"
        assert "read-only" in str(failed.value) and "TORCH_EXTENSIONS_DIR" in str(failed.value)


def test_a_compiler_that_is_not_here_is_our_failure(candidate, monkeypatch):
    text = (
        "import subprocess\nsubprocess.run(['gcc', '--version'], check=True)\n\ndef row_sum(): ..."
    )
    monkeypatch.setattr("graders.surroundings._COMPILERS", ("gcc-of-the-image",))
    text = text.replace("'gcc'", "'gcc-of-the-image'")
    with candidate(text) as found, pytest.raises(GraderVoid, match="gcc-of-the-image"):
        found.session()


@pytest.mark.parametrize("tool", ["nvcc-of-mine", "clang"])
def test_a_tool_that_nobody_promised_is_the_submissions_failure(tool, candidate):
    text = f"import subprocess\nsubprocess.run(['{tool}'], check=True)\n\ndef row_sum(): ...\n"
    with candidate(text) as found, pytest.raises(SubmissionFailed):
        found.session()


def test_naming_a_compiler_that_is_here_voids_nothing(candidate):
    text = "raise RuntimeError('gcc not found, g++ not found')\n\ndef row_sum(): ...\n"
    with candidate(text) as found, pytest.raises(SubmissionFailed) as failed:
        found.session()
    assert failed.value.result == "import"


def test_times_and_modes_survive_a_pack(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "tool").write_bytes(b"x" * 3_000_000)
    (source / "deep" / "tool").chmod(0o755)
    (source / "empty").touch()
    os.utime(source / "deep" / "tool", ns=(1, 1_234_567_890_123_456_789))
    fd = os.memfd_create("pack")
    size = caches.pack_into(fd, str(source), 8 << 20, 10)
    os.ftruncate(fd, size)
    caches.unpack(fd, str(target))
    os.close(fd)
    copied = target / "deep" / "tool"
    assert copied.read_bytes() == b"x" * 3_000_000 and copied.stat().st_mode & 0o777 == 0o755
    assert copied.stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert (target / "empty").read_bytes() == b""


def test_no_pack_writes_outside_its_folder(tmp_path: Path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_text("x")
    fd = os.memfd_create("pack")
    size = caches.pack_into(fd, str(tmp_path / "source"), 1 << 20, 10)
    packed = os.pread(fd, size, 0).replace(b'"x"', b'"../y"')
    os.ftruncate(fd, 0)
    os.pwrite(fd, packed, 0)
    with pytest.raises(ValueError, match="outside"):
        caches.unpack(fd, str(tmp_path / "target"))
    os.close(fd)
    assert not (tmp_path / "y").exists()


def test_a_gpu_workers_surroundings_reach_the_cuda_toolkit():
    toolchain = Toolchain((), "/usr/bin/python3", {"PATH": "/usr/bin", "CUDA_HOME": "/cuda"})
    on_gpu = surroundings.environment(toolchain, "/site", "mark", "/tmp", "GPU-1")
    on_cpu = surroundings.environment(toolchain, "/site", "mark", "/tmp", "cpu")
    assert on_gpu["CUDA_HOME"] == "/cuda" and on_gpu["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert not {"CUDA_HOME", "CUDA_VISIBLE_DEVICES"} & set(on_cpu)
    assert surroundings.limits(1 << 30, "GPU-1").pids > surroundings.limits(1 << 30, "cpu").pids


@pytest.mark.parametrize(
    ("said", "tool"),
    [
        ("Ninja is required to load C++ extensions", "ninja"),
        ("CUDA_HOME environment variable is not set", "nvcc"),
        ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", "nvcc"),
        ("Failed to find C compiler. Please specify via CC", "cc"),
        ("/bin/sh: 1: c++: not found", "c++"),
        ("libnvcc-like.so: a cc-ed letter, my-ninja", None),
    ],
)
def test_the_words_in_which_tools_are_missed_are_understood(said, tool, monkeypatch):
    bare = Toolchain((), "/usr/bin/python3", {"PATH": "/nowhere"})
    monkeypatch.setattr("graders.surroundings.toolchain_of", lambda packages: bare)
    assert surroundings.missing_tool(said, (), "GPU-1") == tool


def test_a_tool_that_is_mounted_is_not_missing(monkeypatch):
    mounts = (Mount(Path("/venv/bin/ninja"), "/opt/tools/ninja"),)
    bare = Toolchain(mounts, "/usr/bin/python3", {"PATH": "/nowhere"})
    monkeypatch.setattr("graders.surroundings.toolchain_of", lambda packages: bare)
    assert surroundings.missing_tool("ninja: failed", (), "GPU-1") is None
