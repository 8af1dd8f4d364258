"""Files of the cache folder: bad ones count for nothing, and none is ever seen half written."""

import json
import multiprocessing
import os

import pytest

from drivers import install, state
from graders import gpu_ceiling, machine, remembered
from graders.machine import Ceilings

UUID = "GPU-1"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The cache folder of this product, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / remembered.FOLDER


@pytest.fixture
def h200(monkeypatch, tmp_path):
    """A machine with one H200; returns the entry that a measurement now would leave."""
    folder = install(tmp_path / "driver", state())
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    machine.gpus.cache_clear()
    yield {
        "driver": "580.82.07",
        "torch": dict(machine.versions(UUID)).get("torch", ""),
        "method": machine.code_digest("graders/trusted_gpu_ceiling.py"),
        "bandwidth_gbs": 4260.0,
        "bfloat16_gflops": 750_000.0,
        "float32_gflops": 51_000.0,
    }
    machine.gpus.cache_clear()


def test_what_is_stored_is_there_beside_what_was():
    remembered.store("a.json", {"x": 1})
    remembered.store("a.json", {"y": 2})
    assert remembered.load("a.json") == {"x": 1, "y": 2}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000])
def test_a_bad_file_counts_as_empty_and_is_replaced(content, cache):
    cache.mkdir()
    (cache / "a.json").write_bytes(content)
    assert remembered.load("a.json") == {}
    remembered.store("a.json", {"x": 1})
    assert remembered.load("a.json") == {"x": 1}


def test_a_folder_that_cannot_be_made_is_given_up(cache):
    cache.write_text("a file where the folder should be")
    remembered.store("a.json", {"x": 1})
    assert remembered.load("a.json") == {}


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert remembered.path_of("a.json") == tmp_path / ".cache" / remembered.FOLDER / "a.json"


def _write(name, value):
    for _ in range(50):
        remembered.store(name, {"long": [value] * 5000})


def test_a_reader_never_sees_half_a_file(cache):
    remembered.store("a.json", {"long": [0] * 5000})
    writers = [multiprocessing.Process(target=_write, args=("a.json", n)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found = remembered.load("a.json")
        assert len(found["long"]) == 5000 and len(set(found["long"])) == 1
    assert [path.name for path in cache.iterdir()] == ["a.json"]


def test_ceilings_are_remembered_for_the_driver_and_method_that_measured_them(h200):
    remembered.store(gpu_ceiling.FILE, {UUID: h200})
    found = gpu_ceiling.recalled(UUID)
    assert found == Ceilings(4260.0, 51_000.0, {"bfloat16": 750_000.0})
    assert gpu_ceiling.recalled("GPU-2") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"driver": "570.1"},
        {"torch": "another"},
        {"method": "another"},
        {"bandwidth_gbs": -1.0},
        {"bandwidth_gbs": "4260"},
        {"bfloat16_gflops": None},
        {"unknown": 1},
    ],
)
def test_ceilings_of_another_driver_or_of_a_bad_entry_are_not(changed, h200, cache):
    cache.mkdir()
    (cache / gpu_ceiling.FILE).write_text(json.dumps({UUID: {**h200, **changed}}))
    assert gpu_ceiling.recalled(UUID) is None


def test_no_figure_of_infinity_comes_from_a_file(h200, cache):
    cache.mkdir()
    text = json.dumps({UUID: h200}).replace("4260.0", "Infinity")
    (cache / gpu_ceiling.FILE).write_text(text)
    assert gpu_ceiling.recalled(UUID) is None
