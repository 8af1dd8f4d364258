"""The page on writing a task is run, command by command, in a copy of the product."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "writing-a-task.md"
PACKAGES = ("graders", "orchestrator", "sandboxes", "tasks", "transcripts")
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def checkout(tmp_path):
    """The packages, where a task and a deck can be added."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tmp_path


def run(folder, script):
    """A script in bash that stops at its first mistake; the interpreter of this test is python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(900)
def test_every_command_of_the_page_does_what_it_says(checkout):
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) == 5
    for block in blocks:
        # `! command` must fail, which bash's -e alone does not hold it to.
        script = re.sub(r"^! (.*)$", r"if \1; then exit 99; fi", block, flags=re.MULTILINE)
        done = run(checkout, script)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    listed = json.loads(run(checkout, "python -m orchestrator tasks list --json").stdout)
    assert listed["decks"]["mine"] == ["row-norm"]
    assert str(checkout) not in run(ROOT, "python -m orchestrator tasks list").stdout
    assert not (ROOT / "tasks" / "library" / "row-norm").exists()
