import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sandboxes.errors import SandboxUnavailable
from sandboxes.jail import Jail, spare_uid
from sandboxes.registry import provider
from sandboxes.toolchain import (
    SITE,
    TOOLS,
    host_toolchain,
    interpreter,
    link_packages,
    reachable_by_others,
)

ROOT = Path(__file__).parents[2]
needs_bubblewrap = pytest.mark.skipif(
    provider("bubblewrap").unavailable_reason() is not None, reason="no bubblewrap here"
)


def run(*argv: str, packages=("numpy",), options=("-I", "-S")) -> str:
    toolchain = host_toolchain(packages)
    jail = Jail(toolchain.mounts, env=toolchain.env, uid=spare_uid("toolchain"))
    process = jail.popen(
        [toolchain.python, *options, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return process.communicate()[0].decode()


def test_an_absent_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(SandboxUnavailable, match="pip install no-such-package"):
        host_toolchain(("no-such-package",))


def test_requirements_come_along():
    targets = {mount.target for mount in host_toolchain(("rich",)).mounts}
    assert {f"{SITE}/rich", f"{SITE}/markdown_it", f"{SITE}/mdurl"} <= targets
    assert f"{SITE}/numpy" not in targets


def test_every_mount_exists():
    assert [mount for mount in host_toolchain().mounts if not mount.source.exists()] == []


@needs_bubblewrap
def test_a_worker_without_site_finds_the_packages_by_path_only():
    code = f"import sys; sys.path.insert(0, {SITE!r}); import numpy; print(numpy.__file__)"
    assert run("-c", code) == f"{SITE}/numpy/__init__.py\n"
    assert "ModuleNotFoundError" in run("-c", "import numpy")


@needs_bubblewrap
def test_without_packages_there_is_the_standard_library_alone():
    code = """
import importlib.metadata, importlib.util, ssl, sqlite3, ctypes
print([name for name in ("numpy", "pip", "setuptools") if importlib.util.find_spec(name)])
print([found.name for found in importlib.metadata.distributions()])
"""
    assert run("-c", code, packages=(), options=()) == "[]\n[]\n"


@needs_bubblewrap
def test_a_virtual_environment_gives_its_base_interpreter(tmp_path):
    venv.create(tmp_path / "env", symlinks=True)
    code = "from sandboxes.toolchain import *; print(interpreter(), host_toolchain(()).python)"
    python = tmp_path / "env" / "bin" / "python"
    found = subprocess.run(
        [python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [str(interpreter())] * 2


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/python3").exists(),
    reason="needs root, to become somebody else, and a system Python",
)
@needs_bubblewrap
def test_an_ordinary_user_with_the_systems_python_gets_the_same_sandbox(tmp_path):
    """No root, another interpreter, another prefix: one child process shows all three."""
    version = subprocess.check_output(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info >= (3, 11))"], text=True
    )
    if version.strip() != "True":
        pytest.skip("the system's Python is older than 3.11")
    code = """
import sys
from pathlib import Path
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain

toolchain = host_toolchain(())
spec = SandboxSpec("s", "o", Path(sys.argv[1]), toolchain.mounts, toolchain.env)
sandbox = provider("bubblewrap").start(spec)
script = "id -u; grep -E 'Cap(Eff|Bnd)' /proc/self/status; python3 -c 'import sandboxes'"
print(sandbox.exec(["sh", "-c", script + "; echo x > f"], timeout_s=30).output.decode())
print(sandbox.get("f"))
sandbox.close()
"""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 1001, 1001)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    if not reachable_by_others([ROOT / "sandboxes" / "base.py"]):
        pytest.skip("this checkout is closed to other users")
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "-c", code, str(state)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        user=1001,
        group=1001,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["65534", "CapEff:\t" + "0" * 16, "CapBnd:\t" + "0" * 16]
    assert "ModuleNotFoundError" in done.stdout
    assert lines[-1] == "b'x\\n'"


def test_reach_of_other_users_is_judged_along_the_whole_path(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "file").write_text("")
    (tmp_path / "closed" / "file").chmod(0o644)
    assert not reachable_by_others([tmp_path / "closed" / "file"])
    assert not reachable_by_others([tmp_path / "absent"])
    assert reachable_by_others([Path("/usr/bin/env")])


def test_the_interpreter_is_the_running_version():
    version = subprocess.check_output(
        [interpreter(), "-c", "import sys; print(sys.version)"], text=True
    )
    assert version.strip() == sys.version


def test_packages_are_linked_where_nothing_is_mounted(tmp_path: Path) -> None:
    toolchain = host_toolchain(("numpy",))
    site = link_packages(toolchain.mounts, tmp_path / "site")
    linked = {path.name: path.readlink() for path in site.iterdir()}
    assert "numpy" in linked
    assert linked == {
        Path(mount.target).name: mount.source
        for mount in toolchain.mounts
        if mount.target.startswith(toolchain.site + "/")
    }
    assert "sandboxes" not in linked


@pytest.fixture
def installed(tmp_path: Path, monkeypatch):
    """Distributions in a prefix of their own: name -> (requirements, files with their content)."""
    site = tmp_path / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name: str, requires: tuple[str, ...] = (), files: dict[str, bytes] | None = None):
        info = site / f"{name.replace('-', '_')}-1.dist-info"
        info.mkdir()
        lines = [f"Requires-Dist: {line}" for line in requires]
        (info / "METADATA").write_text("\n".join([f"Name: {name}", "Version: 1", *lines, ""]))
        for path, data in (files or {}).items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(data)
        record = "".join(f"{path},,\n" for path in files or {})
        (info / "RECORD").write_text(record)

    return install


def test_what_an_extra_requires_comes_with_that_extra_only(installed):
    """torch requires its CUDA libraries as extras of another distribution."""
    installed("framework", ('toolkit[blas, rtc]==13; platform_system == "Linux"',), {"fw.py": b""})
    installed("toolkit", ('blas-lib==1; extra == "blas"', "fft-lib; extra == 'fft'"))
    installed("blas-lib", (), {"blas/__init__.py": b""})
    installed("fft-lib", (), {"fft/__init__.py": b""})
    targets = {mount.target for mount in host_toolchain(("framework",)).mounts}
    assert {f"{SITE}/fw.py", f"{SITE}/blas"} <= targets
    assert f"{SITE}/fft" not in targets


def test_optional_packages_may_be_missing(installed):
    installed("there", (), {"there.py": b""})
    toolchain = host_toolchain((), ("not-there", "there"))
    assert f"{SITE}/there.py" in {mount.target for mount in toolchain.mounts}


def test_compiled_programs_of_packages_come_first_on_the_path_and_scripts_do_not(installed):
    files = {"../../../bin/builder": b"\x7fELF...", "../../../bin/script": b"#!/venv/bin/python\n"}
    installed("builder", (), files)
    toolchain = host_toolchain(("builder",))
    tools = [mount.target for mount in toolchain.mounts if mount.target.startswith(TOOLS)]
    assert tools == [f"{TOOLS}/builder"]
    assert toolchain.env["PATH"].startswith(f"{TOOLS}:")
    assert TOOLS not in host_toolchain(()).env["PATH"]


def test_a_cuda_toolkit_is_on_the_path_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr("sandboxes.toolchain.CUDA", tmp_path)
    assert "CUDA_HOME" not in host_toolchain(()).env
    (tmp_path / "bin").mkdir()
    env = host_toolchain(()).env
    assert env["CUDA_HOME"] == str(tmp_path) and env["PATH"].endswith(f":{tmp_path}/bin")
