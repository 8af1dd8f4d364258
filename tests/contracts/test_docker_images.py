"""Images of docker sandboxes: built without a network, used by sessions."""

import io
import json
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import pytest

from command_line import run_in
from sandboxes import cuda_image, docker_images, host_image
from sandboxes.docker_engine import client_of_engine
from sandboxes.errors import SandboxUnavailable
from sandboxes.registry import provider

pytestmark = [pytest.mark.docker, pytest.mark.parametrize("kind", ["docker"], indirect=True)]

PROGRAMS = ("bash", "cat", "echo", "grep", "head", "id", "kill", "ls", "rm", "sh", "sleep", "env")
STUBS = {
    "usr/bin/nvcc": "#!/bin/sh\necho nvcc\n",
    "usr/bin/gcc": "#!/bin/sh\n",
    "usr/bin/g++": "#!/bin/sh\n",
    "usr/bin/ninja": "#!/bin/sh\n",
    "opt/modules/numpy.py": "",
    "opt/modules/torch.py": "here = True\n",
    "opt/modules/triton.py": "",
}


@pytest.fixture(scope="module")
def base():
    """A small root: this host's Python and shell, and files named like what a session needs."""
    name = f"kernel-orchestrator-test/{uuid.uuid4().hex}"
    if (reason := provider("docker").unavailable_reason()) is not None:
        pytest.skip(reason)
    with client_of_engine(120) as client:
        client.api.import_image_from_data(
            _root(), repository=name, tag="1", changes=["ENV PYTHONPATH=/opt/modules"]
        )
        yield f"{name}:1"
        client.images.remove(f"{name}:1", force=True)


def _root() -> bytes:
    buffer = io.BytesIO()
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    library = Path(sys.base_prefix) / "lib" / python.name
    with tarfile.open(fileobj=buffer, mode="w") as tar:

        def add(path: Path, name: str) -> None:
            tar.add(path.resolve(), name, filter=_readable)

        for folder in ("tmp", "proc", "sys", "dev", "workspace", "opt/build"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        add(python, "usr/bin/python3")
        for part in sorted(library.iterdir()):
            if part.name not in ("site-packages", "test", "idlelib", "ensurepip", "config"):
                add(part, f"usr/lib/{python.name}/{part.name}")
        found = [Path("/bin", program) for program in PROGRAMS if Path("/bin", program).exists()]
        for program in found:
            add(program, f"usr/bin/{program.name}")
        extensions = sorted((library / "lib-dynload").glob("*.so"))
        for shared in _closure([python, *found, *extensions]):
            add(Path(shared), shared.lstrip("/"))
        for name, text in STUBS.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        for name in ("bin", "lib64") if not Path("/lib64").is_dir() else ("bin",):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
    return buffer.getvalue()


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


def _closure(programs: list[Path]) -> set[str]:
    """The shared libraries of all, at their paths, the loader too."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (word for line in told.splitlines() for word in line.split())
    return {word for word in words if word.startswith("/") and not word.endswith(":")}


@pytest.fixture(scope="module")
def image(base):
    """The CUDA image under a name of its own, so that a real one stays as it is."""
    name = base.replace("-test/", "-test-cuda/")
    yield docker_images.build_cuda(name, base, True)["image"]
    with client_of_engine(60) as client:
        client.images.remove(name, force=True)


def test_the_cuda_image_is_built_without_a_network_on_a_base_that_has_all(
    base, image, tmp_path, kind
):
    options = ("--base", base, "--tag", image, "--offline", "--json")
    done = run_in(tmp_path, "sandbox", "build", "--cuda", *options)
    assert done.code == 0, done.err
    built = json.loads(done.out)
    assert (built["base"], built["image"]) == (base, image)
    assert built["image"] in [row["image"] for row in docker_images.images()]
    assert docker_images.identity(built["image"]) == built["id"]


def test_a_base_that_lacks_something_is_told_by_name(kind):
    with pytest.raises(SandboxUnavailable, match="was not built on kernel-orchestrator/host:1"):
        docker_images.build_cuda("kernel-orchestrator-test/none:1", host_image.IMAGE, True)


def test_a_base_that_is_not_there_is_not_looked_up_when_offline(kind):
    with pytest.raises(SandboxUnavailable, match="no image absent:1"):
        docker_images.build_cuda("kernel-orchestrator-test/none:1", "absent:1", True)


def test_the_pinned_base_has_a_digest(kind):
    name, _, digest = cuda_image.pinned_base().partition("@sha256:")
    assert name.startswith("nvidia/cuda:") and len(digest) == 64


def test_a_session_in_an_image_of_its_own_has_its_tools_and_not_the_hosts(start, shell, image):
    sandbox = start(image=image, env={"PATH": "/opt/nowhere", "PYTHONPATH": "/opt/site", "X": "1"})
    code = "import torch, sys; print(torch.here, sys.version_info[:2])"
    told = shell(sandbox, f'python3 -c "{code}"; echo $PATH $X; nvcc; ls /usr/share /opt/site')
    lines = told.output.decode().splitlines()
    assert lines[0] == f"True {tuple(sys.version_info[:2])}"
    assert lines[1] == "/opt/python/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin 1"
    assert lines[2] == "nvcc"
    assert all("No such file" in line for line in lines[3:])


def test_it_is_as_confined_as_any(start, shell, image, tmp_path):
    sandbox = start(image=image, limits={"disk_bytes": 32 << 20})
    told = shell(sandbox, "id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status")
    uid, *rest = told.output.decode().split()
    assert int(uid) != 0
    assert rest == ["CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert shell(sandbox, "echo x > /usr/bin/x").exit_code != 0
    assert b"No space left" in shell(sandbox, "cat /dev/zero > big").output
    sandbox.put("file", b"data")


def test_an_absent_image_is_said_with_what_makes_it(start):
    with pytest.raises(SandboxUnavailable, match="sandbox build --cuda"):
        start(image="absent:1")


def test_only_docker_has_images(spec, kind):
    for other in ("bubblewrap", "process"):
        with pytest.raises(SandboxUnavailable, match="images are docker's"):
            provider(other).start(spec(image="some:1"))


def test_the_host_image_is_built_again_and_the_old_one_goes(tmp_path, kind):
    before = docker_images.build_host()["id"]
    done = run_in(tmp_path, "sandbox", "build", "--host", "--json")
    assert json.loads(done.out)["image"] == host_image.IMAGE
    with client_of_engine(60) as client:
        known = [image.id for image in client.images.list(filters={"label": host_image.LABEL})]
    assert json.loads(done.out)["id"] in known
    assert before not in known or before == json.loads(done.out)["id"]
