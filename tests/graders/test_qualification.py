"""A machine qualifies when our own kernels build, are right, and take as long as usual.

For real, in workers, with NumPy and with C through gcc: what a GPU does with Triton and CUDA.
"""

import os
import shutil
import statistics

import pytest

from graders import machine, qualification, remembered
from graders.errors import GraderVoid
from graders.qualification import qualify, usual
from tasks.loader import read_task


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A machine that remembers nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def broken(monkeypatch, tmp_path):
    """Replace a kernel of ours by another text."""

    def write(language, text):
        copy = tmp_path / "scaled-add"
        shutil.copytree(qualification._TASK, copy)
        (copy / "submissions" / language / "scaled_add.py").write_text(text)
        monkeypatch.setattr(qualification, "_TASK", copy)

    return write


def history():
    return remembered.load(qualification.FILE)


def test_numpy_and_c_build_are_right_and_are_recorded():
    found = qualify("cpu", "bubblewrap")
    assert [one.language for one in found.languages] == ["numpy", "c"]
    assert all(one.milliseconds > 0 and one.build_s > 0 for one in found.languages)
    assert all(one.usual is None and one.drift is None for one in found.languages)
    assert [len(times) for times in history().values()] == [1, 1]
    assert str(found).startswith("cpu qualifies: numpy ")


def test_the_next_ones_are_held_against_the_first_ones():
    taken = qualify("cpu", "bubblewrap", ["c"]).languages[0].milliseconds
    key, _ = history().popitem()
    remembered.store(qualification.FILE, {key: [taken / 2, taken, taken * 2]})
    again = qualify("cpu", "bubblewrap", ["c"]).languages[0]
    assert again.past == 3 and again.usual.median_ms == taken
    assert again.drift == pytest.approx(again.milliseconds / taken - 1)
    assert history()[key] == [taken / 2, taken, taken * 2, again.milliseconds]


def test_a_machine_that_is_slower_than_usual_does_not_qualify_and_keeps_its_history():
    qualify("cpu", "bubblewrap", ["numpy"])
    key, _ = history().popitem()
    quick = [1e-4, 1.01e-4, 1.02e-4]
    remembered.store(qualification.FILE, {key: quick})
    with pytest.raises(GraderVoid, match=r"numpy on cpu now: .* ms, usually .* delete .*json"):
        qualify("cpu", "bubblewrap", ["numpy"])
    assert history()[key] == quick


@pytest.mark.parametrize("bad", ["fast", [None, True, "3", -1.0]])
def test_a_bad_history_counts_as_none(bad):
    qualify("cpu", "bubblewrap", ["numpy"])
    key, _ = history().popitem()
    remembered.store(qualification.FILE, {key: bad})
    assert qualify("cpu", "bubblewrap", ["numpy"]).languages[0].past == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def scaled_add(x, a, b):\n    return x * 2\n", "y: "),
        ("import no_such_tool\n\ndef scaled_add(x, a, b): pass\n", "no_such_tool"),
        ("import os\n\ndef scaled_add(x, a, b): os._exit(0)\n", "exited with code 0"),
    ],
)
def test_a_kernel_that_is_wrong_or_does_not_build_is_the_machines_fault(text, why, broken):
    broken("numpy", text)
    with pytest.raises(GraderVoid, match="does not qualify to grade numpy on cpu") as refused:
        qualify("cpu", "bubblewrap", ["numpy"])
    assert why in str(refused.value) and "orchestrator doctor" in str(refused.value)
    assert history() == {}


def test_a_gpu_that_is_not_there_does_not_qualify(monkeypatch, tmp_path):
    machine.gpus.cache_clear()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(GraderVoid, match="no GPU GPU-9 on this machine"):
        qualify("GPU-9", "bubblewrap")
    machine.gpus.cache_clear()


def test_the_interval_is_four_spreads_or_the_floor():
    assert usual([1.0, 1.1], 0.1) is None
    even = usual([1.0, 1.0, 1.0], 0.1)
    assert (even.low_ms, even.high_ms) == (pytest.approx(0.9), pytest.approx(1.1))
    times = [0.8, 0.9, 1.0, 1.1, 1.2]
    wide = usual(times, 0.1)
    assert wide.median_ms == statistics.median(times)
    assert wide.high_ms == pytest.approx(1 + 4 * 1.4826 * 0.1)


def test_one_odd_time_of_the_past_does_not_widen_it():
    assert usual([1.0, 1.01, 0.99, 1.0, 9.0], 0.1).high_ms < 1.11


def test_every_language_of_a_kind_of_device_has_its_kernel():
    task = read_task(qualification._TASK)
    shipped = {path.name for path in (task.folder / "submissions").iterdir()}
    assert shipped == {name for names in qualification.LANGUAGES.values() for name in names}
    assert shipped == set(task.languages)
