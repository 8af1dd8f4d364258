"""Submissions that attack a GPU: each ends in its word, and leaves nothing on the device."""

import subprocess
import time

import pytest

from graders.machine import gpus
from hostile import GPU
from hostile.base import Attack

LIMITS = {"build_s": 120.0, "call_s": 20.0, "total_s": 180.0}
PATIENCE_S = 20.0  # for the driver to give back what a killed process held

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(gpus()) != 1, reason="needs one NVIDIA GPU with torch and triton"),
]


def held() -> tuple[int, ...]:
    """Processes that have a context on a GPU, and MiB of its memory that are taken."""
    fields = "--query-compute-apps=pid", "--query-gpu=memory.used"
    told = [
        subprocess.run(
            ["nvidia-smi", field, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.split()
        for field in fields
    ]
    return len(told[0]), int(told[1][0])


@pytest.mark.parametrize("attack", GPU[1], ids=lambda attack: attack.name)
def test_an_attack_on_the_device_ends_in_its_word_and_leaves_nothing(attack: Attack, zoo) -> None:
    ours = zoo("row-softmax", "cuda", LIMITS)
    assert ours.honest(whole=False) == "pass"
    before, (processes, used) = ours.traces(), held()
    found = ours.grade(attack)
    assert found.result == attack.word and "Won" not in found.message, found.message
    failed = {check.mechanism for check in found.checks if check.passed is False}
    assert not attack.finding or attack.finding in failed
    assert ours.left(before) == {}
    until = time.monotonic() + PATIENCE_S
    while (now := held()) > (processes, used + 64) and time.monotonic() < until:
        continue
    assert now[0] <= processes and now[1] <= used + 64
    assert ours.honest(whole=False) == "pass"
