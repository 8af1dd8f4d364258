"""Fixtures of the end-to-end tests."""

from functools import partial
from pathlib import Path

import pytest

from command_line import Run, run_in


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command line in an empty folder."""
    return partial(run_in, tmp_path)
