"""What every kind promises about files, whatever an agent planted."""

import pytest

from sandboxes.errors import FileTooLarge, OutsideWorkspace


def test_files_go_in_and_come_out(sandbox, shell):
    sandbox.put("a/b/c.bin", b"\x00\xff")
    sandbox.put(f"{sandbox.home}/top.txt", b"text")
    assert sandbox.get("a/b/c.bin") == b"\x00\xff"
    assert sandbox.get("a/./b/../b/c.bin") == b"\x00\xff"
    assert shell(sandbox, "cat top.txt; wc -c < a/b/c.bin").output == b"text2\n"


def test_commands_own_what_was_put(sandbox, shell):
    sandbox.put("folder/file", b"one\n")
    result = shell(
        sandbox, "echo two >> folder/file && mv folder/file folder/moved && rm -r folder"
    )
    assert (result.exit_code, result.output) == (0, b"")


def test_put_replaces_and_marks_executables(sandbox, shell):
    sandbox.put("run", b"#!/bin/sh\necho one\n", executable=True)
    assert sandbox.exec(["./run"], timeout_s=10).output == b"one\n"
    sandbox.put("run", b"plain")
    assert sandbox.get("run") == b"plain"
    assert [(f.path, f.executable) for f in sandbox.snapshot()] == [("run", False)]


@pytest.mark.parametrize(
    "path", ["../out", "a/../../out", "/etc/passwd", "/workspace/../etc/passwd", "a\0b", "\ud800"]
)
def test_paths_that_leave_the_workspace_are_refused(sandbox, path):
    with pytest.raises(OutsideWorkspace):
        sandbox.put(path, b"")
    with pytest.raises(OutsideWorkspace):
        sandbox.get(path)


@pytest.mark.parametrize("path", ["", ".", "a/.."])
def test_the_workspace_itself_is_no_file(sandbox, path):
    with pytest.raises(IsADirectoryError):
        sandbox.get(path)
    with pytest.raises(IsADirectoryError):
        sandbox.put(path, b"")


def test_what_is_no_file_is_said(sandbox, shell):
    shell(sandbox, "mkdir folder; touch file")
    with pytest.raises(FileNotFoundError) as absent:
        sandbox.get("folder/absent")
    assert absent.value.filename == "folder/absent"
    with pytest.raises(FileNotFoundError):
        sandbox.get("file/below")
    with pytest.raises(IsADirectoryError):
        sandbox.get("folder")
    with pytest.raises(IsADirectoryError):
        sandbox.put("folder", b"")


def test_links_are_not_followed_out(sandbox, shell, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    shell(
        sandbox, f"ln -s {outside} folder; ln -s {outside}/secret file; ln -s {outside}/new fresh"
    )
    for path in ("folder/secret", "file", "fresh"):
        with pytest.raises(OutsideWorkspace):
            sandbox.get(path)
    with pytest.raises(OutsideWorkspace):
        sandbox.put("folder/planted", b"")
    assert sandbox.snapshot() == []
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_put_replaces_a_link_and_not_its_target(sandbox, shell, tmp_path):
    target = tmp_path / "target"
    target.write_text("untouched")
    shell(sandbox, f"ln -s {target} file")
    sandbox.put("file", b"new")
    assert (target.read_text(), sandbox.get("file")) == ("untouched", b"new")


def test_put_to_a_hard_link_leaves_the_other_name_alone(sandbox, shell):
    shell(sandbox, "echo old > one; ln one two")
    sandbox.put("one", b"new")
    assert (sandbox.get("one"), sandbox.get("two")) == (b"new", b"old\n")


def test_special_files_are_neither_read_nor_waited_for(sandbox, shell):
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('socket')"
    shell(sandbox, f'mkfifo fifo; python3 -c "{bind}"; ln -s /dev/zero zero; echo x > plain')
    for path in ("fifo", "socket", "zero"):
        with pytest.raises(OutsideWorkspace):
            sandbox.get(path)
    assert [file.path for file in sandbox.snapshot()] == ["plain"]


def test_giants_are_refused(start, shell):
    sandbox = start(limits={"get_bytes": 1000})
    shell(sandbox, "truncate -s 1000 exact; truncate -s 1001 over; truncate -s 3G sparse")
    assert len(sandbox.get("exact")) == 1000
    for path in ("over", "sparse"):
        with pytest.raises(FileTooLarge):
            sandbox.get(path)
    assert [file.path for file in sandbox.snapshot()] == ["exact"]


def test_the_largest_file_is_capped(start, shell):
    sandbox = start(limits={"file_bytes": 1 << 20})
    assert shell(sandbox, "head -c 2000000 /dev/zero > big").exit_code != 0
    assert len(sandbox.get("big")) == 1 << 20


def test_snapshot_is_sorted_and_complete(sandbox, shell):
    shell(sandbox, "mkdir -p b/.hidden; echo 1 > b/.hidden/x; echo 2 > a; echo 3 > b/y; chmod +x a")
    files = [(file.path, file.data, file.executable) for file in sandbox.snapshot()]
    assert files == [("a", b"2\n", True), ("b/.hidden/x", b"1\n", False), ("b/y", b"3\n", False)]


def test_snapshot_stays_within_its_limits(start, shell):
    sandbox = start(limits={"snapshot_bytes": 2500, "snapshot_files": 3})
    shell(sandbox, "for n in a b c d e f; do head -c 1000 /dev/zero > $n; echo > small-$n; done")
    assert [file.path for file in sandbox.snapshot()] == ["a", "b", "small-a"]


def test_snapshot_survives_odd_trees(sandbox, shell):
    deep = "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\n"
    sandbox.put("deep.py", deep.encode())
    result = shell(
        sandbox,
        r"""python3 deep.py; touch "$(printf 'n\377')" "$(printf 'two\nlines')"
        mkdir shut; touch shut/x; chmod 0 shut; ln -s . loop""",
    )
    assert result.exit_code == 0, result.output
    paths = [file.path for file in sandbox.snapshot()]
    assert [path for path in paths if not path.startswith("shut")] == [
        "deep.py",
        "n\\xff",
        "two\nlines",
    ]
    shell(sandbox, "chmod 700 shut; rm -r d")
