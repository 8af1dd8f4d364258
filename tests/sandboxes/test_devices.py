import pytest

from sandboxes.devices import gpu_devices
from sandboxes.errors import SandboxUnavailable


@pytest.fixture
def driver(tmp_path):
    for minor in (0, 1):
        folder = tmp_path / f"0000:0{minor}:00.0"
        folder.mkdir()
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{minor}a\n"
            f"Bus Location: \t 0000:0{minor}:00.0\nDevice Minor: \t {minor}\n"
        )
    return tmp_path


def test_a_gpu_is_found_by_its_uuid(driver):
    assert gpu_devices(["GPU-1a"], driver)[-1] == "/dev/nvidia1"
    assert "/dev/nvidia0" not in gpu_devices(["GPU-1a"], driver)


def test_an_unknown_gpu_is_refused_with_those_that_are_there(driver):
    with pytest.raises(SandboxUnavailable, match=r"no GPU GPU-x.*GPU-0a, GPU-1a"):
        gpu_devices(["GPU-x"], driver)


def test_no_gpu_needs_no_driver(tmp_path):
    assert gpu_devices([], tmp_path / "absent") == ()
