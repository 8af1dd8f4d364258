"""Folders that cannot be removed the ordinary way."""

import os
import sys
from pathlib import Path

from graders.clearing import remove


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
