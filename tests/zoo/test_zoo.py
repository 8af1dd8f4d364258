"""Submissions that attack the grader: each ends in its word, and leaves nothing behind."""

import time

import pytest

from hostile import ATTACKS
from hostile.base import Attack

SLACK_S = 15.0
"""Seconds beyond its limit that a grade may take: workers start, and the machine is shared."""

UNHARMED = ("pass", "wrong", "nan", "import", "forbidden", "build")
"""Words of grades whose workers served to the end. A whole grade of the oracle takes three times as
long as its calls alone, and follows soon: one process grades all of these, one after the other."""


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=lambda attack: attack.name)
def test_an_attack_ends_in_its_word_and_leaves_nothing(attack: Attack, zoo) -> None:
    ours = zoo("scaled-row-sum")
    if attack.needs_group and not ours.has_groups():
        pytest.skip("the memory of a whole worker is capped by cgroup v2 only, not writable here")
    before, started = ours.traces(), time.monotonic()
    found = ours.grade(attack)
    assert time.monotonic() - started < ours.limits(attack)["total_s"] + SLACK_S
    assert found.result == attack.word and "Won" not in found.message, found.message
    assert not attack.finding or attack.finding in failed(found)
    assert "\x1b" not in found.message and found.model_dump_json().encode()
    assert ours.left(before) == {}
    assert ours.honest(whole=found.result not in UNHARMED) == "pass"
    assert ours.left(before) == {}


def failed(grade) -> set[str]:
    """Mechanisms of the probes that found something."""
    return {check.mechanism for check in grade.checks if check.passed is False}
