"""The demo from nothing to an audited board, and every verb on the archive that it leaves."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import Finished, run_in, sweep_until_measured
from processes import processes_that_see

MODELS = "oracle,naive,wrong,cheater,idle"
SWEEP = ("sweep", "--models", MODELS, "--deck", "rounds", "--archive", "archive")
TASKS = ("kv-cache", "layernorm-backward", "fused-softmax-topk")

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive of one demo."""
    folder = tmp_path_factory.mktemp("demo")
    done = sweep_until_measured(folder, *SWEEP)
    assert done.code == 0, done.err
    (folder / "printed").write_text(done.out)
    return folder


def rows(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    done = run_in(folder, "status", "--json")
    assert done.code == 0, done.err
    return {(row["entrant"], row["task"]): row for row in json.loads(done.out)}


def ok(done: Finished) -> str:
    assert done.code == 0, done.err
    return done.out


def test_every_cell_ends_with_its_word(demo: Path) -> None:
    found = rows(demo)
    for task in TASKS:
        words = {
            entrant: (row["session"], row["grade"], row["audit"])
            for (entrant, its_task), row in found.items()
            if its_task == task
        }
        assert words["oracle"] == ("submitted", "pass", "clean")
        assert words["naive"] == ("submitted", "pass", "clean")
        assert words["wrong"][0] == "submitted"
        assert words["wrong"][1] != "pass"
        assert words["wrong"][2] == "fail"
        assert words["idle"] == ("no_submission", "none", "none")
        assert words["cheater"][0] == "submitted"
        assert words["cheater"][2] in ("reward_hack", "contamination", "rubric_leak")


def test_the_cheater_is_flagged_with_evidence_that_can_be_checked(demo: Path) -> None:
    found = rows(demo)
    for task in TASKS:
        attempt = found["cheater", task]["attempt"]
        (audit,) = json.loads(ok(run_in(demo, "audit", attempt, "--json")))
        quotes = [
            (finding["place"], finding["quote"])
            for finding in audit["findings"]
            if finding["kind"] == "source"
        ]
        assert audit["findings"]
        (folder,) = (demo / "archive" / "sessions").glob(f"*/*/*/{attempt}")
        for place, quote in quotes:
            assert quote in (folder / "submission" / place).read_text()


def test_the_board_ranks_the_honest_and_shows_the_others(demo: Path) -> None:
    printed = (demo / "printed").read_text()
    assert all(model in printed for model in MODELS.split(","))
    again = ok(run_in(demo, "board"))
    assert again == ok(run_in(demo, "board"))
    ranked = re.findall(r"^ (\d+) +(\S+) +(\d)/3 ", again, re.MULTILINE)
    assert ranked[:2] == [("1", "oracle", "3"), ("2", "naive", "3")]
    assert {model for _, model, valid in ranked if valid == "0"} == {"cheater", "idle", "wrong"}


def test_the_same_sweep_again_does_nothing_twice(demo: Path) -> None:
    before = sorted(path for path in (demo / "archive").rglob("*") if path.is_file())
    digests = {path: path.read_bytes() for path in before if "sessions" in path.parts}
    done = run_in(demo, *SWEEP, timeout_s=120)
    assert done.code == 0, done.err
    assert "15 done" in done.err
    after = [path for path in (demo / "archive").rglob("*") if path.is_file()]
    assert {path for path in after if "sessions" in path.parts} == set(digests)
    assert all(path.read_bytes() == data for path, data in digests.items())


def test_a_session_can_be_watched_and_executed_again(demo: Path) -> None:
    attempt = rows(demo)["oracle", "layernorm-backward"]["attempt"]
    watched = ok(run_in(demo, "replay", attempt))
    assert "handed in" in watched
    done = run_in(demo, "replay", attempt, "--execute", "--json")
    replayed = json.loads(done.out)
    assert replayed["faithful"], done.out
    assert "solution.py" in replayed["files"]["identical"]


def test_two_models_make_a_round(demo: Path) -> None:
    text = ok(run_in(demo, "compare", "oracle", "naive", "--out", "round.md"))
    assert "oracle" in text
    written = (demo / "round.md").read_text()
    assert "not judged" in written
    assert all(task in written for task in TASKS)


def test_the_archive_verifies_and_merges_into_another(demo: Path) -> None:
    assert "everything verifies" in ok(run_in(demo, "archive", "verify"))
    ok(run_in(demo, "archive", "merge", "archive", "--archive", "other"))
    ok(run_in(demo, "archive", "merge", "archive", "--archive", "other"))
    assert "everything verifies" in ok(run_in(demo, "archive", "verify", "--archive", "other"))
    board, other = (ok(run_in(demo, "board", "--archive", name)) for name in ("archive", "other"))
    assert board == other


def test_nothing_is_left_running(demo: Path) -> None:
    assert processes_that_see(demo / "archive") == []
