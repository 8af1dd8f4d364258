"""`sandbox` as a user runs it; its images are in `tests/contracts/test_docker_images.py`."""

import json

import pytest

from command_line import Run
from sandboxes import checkup
from sandboxes.base import Limits
from sandboxes.registry import provider

needs_bubblewrap = pytest.mark.skipif(
    provider("bubblewrap").unavailable_reason() is not None, reason="bubblewrap does not work here"
)


def test_the_kinds_are_listed_with_what_they_lack(run: Run) -> None:
    done = run("sandbox", "list", "--json", DOCKER_HOST="unix:///nowhere.sock")
    assert done.code == 0
    rows = json.loads(done.out)
    kinds = {row["kind"]: row for row in rows["kinds"]}
    assert list(kinds) == ["docker", "bubblewrap", "process"]
    assert "nowhere.sock" in kinds["docker"]["reason"]
    assert "isolates nothing" in kinds["process"]["lacks"][0]
    assert rows["images"] == []


@needs_bubblewrap
def test_an_isolating_kind_passes_every_look(run: Run) -> None:
    done = run("sandbox", "check", "bubblewrap", "--json")
    assert done.code == 0, done.out
    looks = {look["topic"]: look for look in json.loads(done.out)}
    assert {"start", "command", "ordinary user", "no network", "timeout", "supervisor"} <= set(
        looks
    )


def test_a_kind_that_isolates_nothing_fails_the_looks_at_isolation(run: Run) -> None:
    done = run("sandbox", "check", "process", "--json")
    assert done.code == 1
    failed = {look["topic"] for look in json.loads(done.out) if not look["ok"]}
    assert {"no network", "system calls"} <= failed
    assert not {"command", "timeout", "start"} & failed


@needs_bubblewrap
def test_a_broken_promise_is_a_failed_look(monkeypatch: pytest.MonkeyPatch) -> None:
    if checkup.why_not_limited() is not None:
        pytest.skip("not capped here")
    monkeypatch.setattr(checkup, "_LIMITS", Limits(disk_bytes=1 << 30))  # too much for the look
    looks = {look.topic: look.ok for look in checkup.check(provider("bubblewrap"))}
    assert not looks["disk"]
    assert looks["command"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build",), "--host or --cuda"),
        (("build", "--host", "--cuda"), "--host or --cuda"),
        (("build", "--host", "--base", "x"), "for --cuda"),
    ],
)
def test_a_build_that_makes_no_sense_is_refused(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run("sandbox", *words)
    assert done.code == 2
    assert said in done.err


def test_a_kind_that_is_not_there_is_code_3(run: Run) -> None:
    done = run("sandbox", "check", "docker", DOCKER_HOST="unix:///nowhere.sock")
    assert done.code == 3
    assert "nowhere.sock" in done.err


@needs_bubblewrap
def test_a_sweep_refuses_an_image_where_there_are_none(run: Run) -> None:
    words = ("sweep", "--models", "idle", "--sandbox", "bubblewrap", "--image", "some:1")
    done = run(*words)
    assert done.code == 2
    assert "docker sandboxes" in done.err
    assert run(*words[:-2], "--disk", "0").code == 2
