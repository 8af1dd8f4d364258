"""Which files a grade's digests of checks and of timing cover."""

from pathlib import Path

import graders
from graders.recording import BOTH, CHECKS, TIMING

ROOT = Path(graders.__file__).parent
MEASURES_NOTHING = {
    *("__init__", "base", "errors", "mechanisms", "preparing", "public"),
    *("qualification", "recording", "remembered", "scoring"),
}
"""What asks, records and reads; the digest of all our code is in the fingerprint."""


def modules() -> set[str]:
    files = [*ROOT.glob("*.py"), *(ROOT / "worker").glob("*.py")]
    names = {path.relative_to(ROOT).with_suffix("").as_posix() for path in files}
    return names - {"worker/__init__"}


def test_every_module_that_measures_is_in_a_digest() -> None:
    covered = {*CHECKS, *TIMING, *BOTH}
    assert modules() - covered == MEASURES_NOTHING


def test_every_name_of_a_digest_is_there() -> None:
    for name in (*CHECKS, *TIMING, *BOTH):
        assert (ROOT / f"{name}.py").is_file() or (ROOT / name).is_dir(), name
