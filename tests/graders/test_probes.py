"""Each probe passes what is honest and fails what it is there for."""

from collections.abc import Callable

import pytest

from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.mechanisms import MECHANISMS
from graders.probes import FATAL, run_probes
from tasks.loader import read_task
from transcripts.records import CheckResult

HEAD = "import hashlib, subprocess, sys, threading, time, weakref\nimport numpy as np\n\n"
HONEST = """
    return x.mean(axis=1, dtype=np.float64).astype(x.dtype), x.max(axis=1)
"""


def text(body: str, globals_: str = "", end: str = HONEST) -> str:
    """A submission to `tuple-moments` that runs ``body`` before it is honest."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"{HEAD}{globals_}\n\ndef moments(x):\n{lines}{end}"


@pytest.fixture
def probed(library, submit) -> Callable[..., list[CheckResult]]:
    """The probes of a text."""

    def run(source: str, seed: str = "a seed", isolation: str = "process") -> list[CheckResult]:
        folder = submit({"solution.py": source})
        request = GradeRequest(read_task(library / "tuple-moments"), folder, isolation=isolation)
        with candidate_of(request) as candidate:
            return run_probes(candidate, seed)

    return run


def failed(found: list[CheckResult]) -> set[str]:
    return {check.check for check in found if check.passed is False}


KEEP = """
kept = {}

def computed(x):
    return x.mean(axis=1, dtype=np.float64).astype(x.dtype), x.max(axis=1)

def copies(pair):
    return pair[0].copy(), pair[1].copy()
"""
DISHONEST = {
    "same memory, new content": text(
        """
key = x.ctypes.data, x.shape
if key not in kept: kept[key] = computed(x)
return copies(kept[key])
""",
        KEEP,
    ),
    "freed and recycled": text(
        """
key = x.ctypes.data, x.shape
if key in kept and kept[key][0]() is None: return copies(kept[key][1])
kept[key] = weakref.ref(x), computed(x)
return copies(kept[key][1])
""",
        KEEP,
    ),
    "one element changed": text(
        """
key = x.shape, x[:, :2].tobytes()
if key not in kept: kept[key] = computed(x)
return copies(kept[key])
""",
        KEEP,
    ),
    "shapes in any order": text(
        "width[0] = min(width[0], x.shape[1])\nx = x[:, :width[0]]", "width = [1 << 30]"
    ),
    "dirty memory": text(
        """
room = np.empty(1 << 16, x.dtype)[1000:]  # the system's own pages are zeros
room[:len(x)] += x.max(axis=1)
largest = room[:len(x)].copy()
room[:len(x)] = 0
return x.mean(axis=1, dtype=np.float64).astype(x.dtype), largest
"""
    ),
    "returned output scribbled": text(
        """
key = hashlib.sha256(x.tobytes()).digest()
if key not in kept: kept[key] = computed(x)
return kept[key]
""",
        KEEP,
    ),
    "copied at once and later": text(
        """
mean, largest = computed(x)
threading.Thread(target=later, args=(largest,), daemon=True).start()
return mean, largest
""",
        KEEP + "\ndef later(y):\n    time.sleep(0.01)\n    y += 1\n",
    ),
    "many calls": text("calls[0] += 1\nif calls[0] > 50: x = x * 2", "calls = [0]"),
    "equal content": text(
        """
key = hashlib.sha256(x.tobytes()).digest()
if key not in kept: kept[key] = slow(x)
return copies(kept[key])
""",
        KEEP
        + "\ndef slow(x):\n    for _ in range(900):\n        pair = computed(x)\n    return pair\n",
    ),
    "inputs unchanged": text("pair = computed(x)\nx[:, 0] = 0\nreturn pair", KEEP),
    "plain outputs": text(
        "return computed(x)[0].view(Mine), computed(x)[1]",
        KEEP
        + """
class Mine(np.ndarray):
    pass
""",
    ),
    "left behind": text("started.append(subprocess.Popen(['sleep', '60']))", "started = []"),
}


@pytest.mark.parametrize("check", DISHONEST)
def test_a_probe_fails_the_submission_that_it_is_there_for(probed, check):
    found = probed(DISHONEST[check])
    assert check in failed(found), [(line.check, line.passed, line.detail) for line in found]
    told = next(line for line in found if line.check == check and line.passed is False)
    assert told.detail and told.mechanism in MECHANISMS


HONEST_LOOK_ALIKES = {
    "plain": text("pass"),
    "buffers used again": text(
        """
if x.shape not in kept: kept[x.shape] = computed(x)
kept[x.shape][0][:], kept[x.shape][1][:] = computed(x)
return kept[x.shape]
""",
        KEEP,
    ),
    "a slow first call": text("if not calls: time.sleep(0.05)\ncalls.append(1)", "calls = []"),
    "joined threads": text(
        """
pair = computed(x)
thread = threading.Thread(target=pair[1].max)
thread.start()
thread.join()
return pair
""",
        KEEP,
    ),
}


@pytest.mark.parametrize("what", HONEST_LOOK_ALIKES)
def test_probes_pass_what_is_honest(probed, what):
    found = probed(HONEST_LOOK_ALIKES[what])
    assert [(line.check, line.detail) for line in found if line.passed is not True] == []
    assert {line.check for line in found} >= set(DISHONEST)


def test_in_a_jail_the_same_holds(probed):
    found = probed(HONEST_LOOK_ALIKES["plain"], isolation="bubblewrap")
    assert failed(found) == set()
    assert "freed and recycled" in failed(
        probed(DISHONEST["freed and recycled"], isolation="bubblewrap")
    )


def test_every_mechanism_of_a_probe_is_in_the_table(probed):
    found = probed(HONEST_LOOK_ALIKES["plain"])
    assert {line.mechanism for line in found} <= set(MECHANISMS)
    assert set(MECHANISMS) >= FATAL


def test_numbers_of_calls_and_orders_follow_from_the_seed(probed):
    runs = [probed(HONEST_LOOK_ALIKES["plain"], seed) for seed in ("a", "a", "b", "c", "d")]
    calls = [line.evidence["calls"] for run in runs for line in run if line.check == "many calls"]
    assert calls[0] == calls[1] and len(set(calls)) > 1


def test_a_submission_that_is_wrong_from_the_first_call_is_not_compared(probed):
    found = probed(text("x = x * 2"))
    not_run = {line.check for line in found if line.passed is None}
    assert "same memory, new content" in not_run and failed(found) == set()


def test_what_is_wrong_on_large_inputs_and_stays_so_was_not_written_late(probed):
    found = probed(text("if x.size > 20000: x = x * 2"))
    assert "copied at once and later" not in failed(found)
