"""A user's mistake is one clear screen, a code that is not 0, and nothing lost."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Finished, Run

ROOT = Path(__file__).parents[2]
SWEEP = ("sweep", "--models", "oracle", "--deck", "rounds")


def one_screen(done: Finished, *words: str) -> None:
    assert done.code != 0
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 24
    missing = [word for word in words if word not in done.err]
    assert not missing, done.err


def test_an_unknown_model_offers_the_nearest_names(run: Run, tmp_path: Path) -> None:
    done = run("sweep", "--models", "orakle", "--deck", "rounds")
    one_screen(done, "orakle", "oracle")
    assert not (tmp_path / "archive").exists()


def test_an_unknown_deck_offers_the_nearest_names(run: Run) -> None:
    one_screen(run("sweep", "--models", "oracle", "--deck", "round"), "round", "rounds")


def test_an_unknown_task_says_what_the_deck_has(run: Run) -> None:
    one_screen(run(*SWEEP, "--tasks", "kv-cash"), "kv-cash", "kv-cache")


def test_an_unknown_task_of_a_grade_offers_the_nearest_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = run("grade", "mine", "--task", "layernorm-backwards")
    one_screen(done, "layernorm-backward")


def test_a_typo_in_a_config_file_says_file_line_and_field(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "models.toml"
    config.write_text(
        '[models.mine]\nprotocol = "openai"\nbase_ulr = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    )
    done = run("sweep", "--models", "mine", "--config", str(config))
    one_screen(done, "models.toml", "3", "base_ulr", "base_url")


def test_a_missing_key_names_the_variable_and_the_model(run: Run, tmp_path: Path) -> None:
    done = run("sweep", "--models", "glm-5", "--deck", "rounds")
    one_screen(done, "glm-5", "_API_KEY")
    assert not (tmp_path / "archive").exists()


def test_an_archive_of_a_newer_format_is_left_alone(run: Run, tmp_path: Path) -> None:
    one_screen(run("archive", "merge", "nowhere"), "nowhere")
    assert not (tmp_path / "archive").exists()
    marker = tmp_path / "archive" / "archive.json"
    marker.parent.mkdir()
    marker.write_text('{"format_version": 99, "created_by": "a later version"}')
    before = marker.read_bytes()
    one_screen(run(*SWEEP), "newer")
    assert marker.read_bytes() == before


def test_a_folder_that_is_no_archive_is_left_alone(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "archive" / "photo.jpg"
    other.parent.mkdir()
    other.write_bytes(b"x")
    one_screen(run(*SWEEP), "archive")
    assert [path.name for path in other.parent.iterdir()] == ["photo.jpg"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one mebibyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], stderr=subprocess.DEVNULL
    )
    if not mounted:
        pytest.skip("mounting a small filesystem needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_archive_keeps_what_is_written_and_goes_on_later(run: Run, small_disk: Path) -> None:
    archive = small_disk / "archive"
    assert (
        run("sweep", "--models", "idle", "--tasks", "kv-cache", "--archive", str(archive)).code == 0
    )
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    ballast.write_bytes(b"x" * (free - 8192))
    done = run(*SWEEP, "--tasks", "layernorm-backward", "--archive", str(archive))
    assert done.code in (4, 5)
    assert "Traceback" not in done.err
    assert "space" in done.err or "full" in done.err
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = run(*SWEEP, "--tasks", "layernorm-backward", "--archive", str(archive))
    assert done.code == 0, done.err
    assert run("archive", "verify", "--archive", str(archive)).code == 0


def test_a_read_only_archive_can_be_read_and_says_so_when_written(
    run: Run, small_disk: Path
) -> None:
    archive = small_disk / "archive"
    assert (
        run("sweep", "--models", "idle", "--tasks", "kv-cache", "--archive", str(archive)).code == 0
    )
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    one_screen(run(*SWEEP, "--archive", str(archive)), "Read-only", "--archive")
    status = run("status", "--json", "--archive", str(archive))
    assert status.code == 0
    assert [row["session"] for row in json.loads(status.out)] == ["no_submission"]


def test_a_port_in_use_is_said(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one_screen(run("serve-scripted", "--port", str(port)), str(port), "in use")


def test_a_task_with_a_broken_reference_is_explained(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "layernorm-backward"
    shutil.copytree(ROOT / "tasks" / "library" / "layernorm-backward", broken)
    (broken / "public" / "reference.py").write_text(
        "def make_inputs(shape, seed):\n    return 1 +\n"
    )
    done = run("tasks", "check", str(broken))
    assert done.code != 0
    assert "Traceback" not in done.err
    said = done.out + done.err
    assert "reference.py" in said
    assert "2" in said


def test_wrong_option_values_say_what_is_allowed(run: Run) -> None:
    one_screen(run(*SWEEP, "--tier", "thorough"), "quick", "full")
    one_screen(run(*SWEEP, "--concurrency", "many"), "auto")
    one_screen(run(*SWEEP, "--sandbox", "jail"), "bubblewrap")


def test_errors_are_json_where_json_was_asked_for(run: Run) -> None:
    done = run("--json", "sweep", "--models", "orakle")
    assert done.code == 2
    assert "orakle" in json.loads(done.out)["error"]["message"]


def test_a_foreign_folder_that_hides_a_package_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("")
    one_screen(run("status"), "tasks", str(tmp_path))
