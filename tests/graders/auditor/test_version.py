"""The auditor's version follows its code."""

import shutil
from pathlib import Path

import graders
from graders.auditor import version
from graders.auditor.pipeline import AUDITOR_VERSION


def test_an_audit_names_the_code_that_made_it(audited) -> None:
    assert audited("def solve(x, w): return x\n").auditor_version == AUDITOR_VERSION
    assert version.code_version() == AUDITOR_VERSION
    assert len(AUDITOR_VERSION) == 12


def test_a_changed_rule_or_mechanism_is_another_version(tmp_path: Path, monkeypatch) -> None:
    package = Path(graders.__file__).parent
    copy = tmp_path / "graders"
    shutil.copytree(package / "auditor", copy / "auditor")
    shutil.copy(package / "mechanisms.py", copy)
    monkeypatch.setattr(version, "_HERE", copy / "auditor")
    assert version.code_version() == AUDITOR_VERSION
    seen = {AUDITOR_VERSION}
    for name in ("auditor/verdict.py", "mechanisms.py"):
        with (copy / name).open("a") as file:
            file.write("\n")
        seen.add(version.code_version())
    assert len(seen) == 3
