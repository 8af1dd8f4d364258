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
    assert list(sandbox.snapshot()) == []
    assert sandbox.snapshot().left_out == (
        "file: a link or special file",
        "folder: a link or special file",
        "fresh: a link or special file",
    )
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


def test_snapshot_stays_within_its_limits_and_says_so(start, shell):
    sandbox = start(limits={"snapshot_bytes": 2500, "snapshot_files": 8})
    shell(sandbox, "for n in a b c d e f; do head -c 1000 /dev/zero > $n; echo > s$n; done")
    snapshot = sandbox.snapshot()
    assert [file.path for file in snapshot] == ["a", "b", "sa", "sb", "sc", "sd", "se", "sf"]
    assert [line.split(":")[0] for line in snapshot.left_out] == ["c", "d", "e", "f"]


def test_giants_leave_room_for_what_is_small(start, shell):
    sandbox = start(limits={"get_bytes": 1000, "snapshot_bytes": 2000})
    for name in ("bench0.npy", "bench1.npy", "bench2.npy"):
        sandbox.put(name, bytes(900))
    sandbox.put("solution.py", b"x = 1\n" * 50)
    sandbox.put("whole.npy", bytes(1001))
    snapshot = sandbox.snapshot()
    assert [file.path for file in snapshot] == ["bench0.npy", "solution.py"]
    assert [line.split(":")[0] for line in snapshot.left_out] == [
        "bench1.npy",
        "bench2.npy",
        "whole.npy",
    ]
    assert "900 bytes" in snapshot.left_out[0]
    assert "1001 bytes, more than the 1000 of one file" in snapshot.left_out[2]


def test_a_flood_of_files_in_folders_hides_none_above_it(start, shell):
    sandbox = start(limits={"snapshot_files": 20})
    shell(sandbox, "mkdir -p a/b .cache; for n in {1..300}; do > a/b/$n; done")
    sandbox.put("solution.py", b"x = 1\n")
    snapshot = sandbox.snapshot()
    assert "solution.py" in [file.path for file in snapshot]
    assert len(snapshot) == 20
    assert len(snapshot.left_out) == 101
    assert snapshot.left_out[-1] == "and 181 more"


def test_what_tools_derive_takes_no_place_and_is_named(start, shell):
    sandbox = start(limits={"snapshot_bytes": 1000, "snapshot_files": 2})
    shell(
        sandbox,
        "mkdir -p .git/objects a/__pycache__; for n in {1..20}; do echo > .git/objects/$n; done;"
        "echo > a/__pycache__/solution.pyc; echo > loose.pyc; echo > solution.py",
    )
    snapshot = sandbox.snapshot()
    assert [file.path for file in snapshot] == ["solution.py"]
    assert [line.split(":")[0] for line in snapshot.left_out] == [
        ".git",
        "loose.pyc",
        "a/__pycache__",
    ]


def test_names_that_no_archive_can_keep_are_left_out_and_said_plainly(sandbox, shell):
    make = (
        "import os\n"
        "names = [b'n\\xff' * 127, b'two\\nlines', b'\\x1b[31mred', b'\\xe2\\x80\\xaetxt.py',"
        " b'ok.py', b'OK.py', b'dot.', b'...', b'back\\\\slash',"
        " b'n' * 255, b'seal.json', b'-rf']\n"
        "for name in names: open(name, 'w').close()\n"
        "for _ in range(6): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
        "open('x' * 200, 'w').close()\n"
    )
    sandbox.put("make.py", make.encode())
    result = shell(sandbox, "python3 make.py")
    assert result.exit_code == 0, result.output
    snapshot = sandbox.snapshot()
    odd = ["-rf", "...", "OK.py", "back\\slash", "dot."]
    assert [file.path for file in snapshot] == [*odd, "make.py", "n" * 255, "ok.py", "seal.json"]
    assert len(snapshot.left_out) == 5
    said = "\n".join(snapshot.left_out)
    assert all(line.isprintable() and len(line) < 300 for line in snapshot.left_out)
    for shown in ("n\\xffn", "two\\nlines", "\\x1b[31mred", "\\u202etxt.py", "ddd"):
        assert shown in said


def test_refusals_show_names_plainly(sandbox, shell):
    shell(sandbox, r"""ln -s /etc/passwd "$(printf '\033[31mred')" """)
    with pytest.raises(OutsideWorkspace) as refused:
        sandbox.get("\x1b[31mred")
    assert str(refused.value).isprintable()


def test_snapshot_survives_odd_trees(sandbox, shell):
    deep = "import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\n"
    sandbox.put("deep.py", deep.encode())
    result = shell(sandbox, "python3 deep.py; mkdir shut; touch shut/x; chmod 0 shut; ln -s . loop")
    assert result.exit_code == 0, result.output
    snapshot = sandbox.snapshot()
    paths = [file.path for file in snapshot]
    assert [path for path in paths if not path.startswith("shut")] == ["deep.py"]
    said = "\n".join(snapshot.left_out)
    assert "loop: a link" in said
    assert "/d/d: beyond 32 nested folders" in said
    shell(sandbox, "chmod 700 shut; rm -r d")
