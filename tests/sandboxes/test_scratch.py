"""Folders of one job: their end, and what killed processes and odd contents leave."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sandboxes.scratch import Scratch, reap, remove


def test_folders_deeper_than_the_stack_are_removed(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)
    for _ in range(2 * sys.getrecursionlimit()):
        Path("deeper").mkdir()
        os.chdir("deeper")
    monkeypatch.undo()
    remove(root)
    assert not root.exists()


def test_a_closed_folder_and_strange_names_are_removed_and_links_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    root = tmp_path / "-root"
    (root / "a\n*" / "inner").mkdir(parents=True)
    (root / "link").symlink_to(kept)
    (root / "a\n*").chmod(0)
    remove(root)
    remove(root)
    assert not root.exists() and (kept / "file").read_text() == "x"


HOLD = """
import sys
from sandboxes.scratch import Scratch
scratch = Scratch("test")
(scratch.folder() / "file").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_a_folder_is_gone_at_the_end_of_its_block_whatever_happens():
    with Scratch("test") as scratch:
        (scratch.folder() / "file").write_text("x")
    assert not scratch.path.exists()
    scratch.close()


def test_what_a_killed_process_left_is_reaped_and_what_lives_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    left = Path(process.stdout.readline().strip())
    assert left.parent == tmp_path
    with Scratch("test") as ours:
        assert reap() == []
        process.kill()
        process.wait()
        assert reap() == [f"scratch {left.name}"]
        assert ours.path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_links_files_and_fresh_folders_without_a_lock_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "kernel-orchestrator-link").symlink_to(kept)
    (tmp_path / "kernel-orchestrator-file").write_text("x")
    (tmp_path / "kernel-orchestrator-fresh").mkdir()
    old = tmp_path / "kernel-orchestrator-old"
    old.mkdir()
    os.utime(old, (0, 0))
    assert reap() == ["scratch kernel-orchestrator-old"]
    assert len(list(tmp_path.iterdir())) == 4
