"""How a container is given its GPUs, by what engines say of themselves.

The words of an engine are data here: no test machine has NVIDIA's runtime or CDI.
"""

import pytest

from sandboxes.docker_gpu import DRIVER, container_options, driver_mounts, way
from sandboxes.errors import SandboxUnavailable

GPU = "GPU-d60ad50c-6d0f-cc0d-bb0e-07e9c0fbf100"
PLAIN = {"Runtimes": {"runc": {}}, "DiscoveredDevices": None}
RUNTIME = {"Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}
CDI = RUNTIME | {
    "DiscoveredDevices": [
        {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
        {"Source": "cdi", "ID": f"nvidia.com/gpu={GPU}"},
    ]
}


@pytest.mark.parametrize(
    ("info", "chosen"), [(PLAIN, "nodes"), ({}, "nodes"), (RUNTIME, "runtime"), (CDI, "cdi")]
)
def test_an_image_without_a_driver_is_given_one_by_the_best_way(info, chosen):
    assert way(info, [GPU], host_image=False) == chosen


def test_a_gpu_that_cdi_does_not_name_is_asked_of_the_runtime():
    assert way(CDI, [GPU, "GPU-other"], host_image=False) == "runtime"


@pytest.mark.parametrize("info", [PLAIN, RUNTIME, CDI])
def test_the_host_image_needs_nodes_only_and_no_gpu_needs_nothing(info):
    assert way(info, [GPU], host_image=True) == "nodes"
    assert way(info, [], host_image=False) == ""


def test_requests_name_the_gpus_and_no_others():
    (cdi,) = container_options("cdi", [GPU])["device_requests"]
    assert (cdi["Driver"], cdi["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={GPU}"])
    (runtime,) = container_options("runtime", [GPU])["device_requests"]
    assert runtime["DeviceIDs"] == [GPU]
    assert runtime["Count"] == 0
    assert runtime["Capabilities"] == [["gpu", "compute", "utility"]]


def test_without_gpus_no_device_is_passed_and_an_unknown_one_is_refused():
    assert container_options("", []) == {"devices": []}
    with pytest.raises(SandboxUnavailable, match="no GPU GPU-absent"):
        container_options("nodes", ["GPU-absent"])


def test_driver_libraries_are_found_in_the_linkers_list(tmp_path):
    real = tmp_path / "libcuda.so.580.82"
    real.touch()
    (tmp_path / "libcuda.so.1").symlink_to(real)
    listing = f"""3 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcuda.so (libc6,x86-64) => {tmp_path}/libcuda.so
\tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/libnvidia-ml.so.1
\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/libcudart.so.13
"""
    found = {mount.target: mount.source for mount in driver_mounts(listing)}
    assert found.keys() == {f"{DRIVER}/libcuda.so.1", f"{DRIVER}/libnvidia-ml.so.1"}
    assert found[f"{DRIVER}/libcuda.so.1"] == real
