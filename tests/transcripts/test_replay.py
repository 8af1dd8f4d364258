from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcripts.events import Reply, ToolCall, ToolCallStarted, ToolResult
from transcripts.folder import AttemptFolder
from transcripts.replay import (
    EditRefused,
    apply_edits,
    compare,
    rebuild_files,
    relocate,
    tool_steps,
    workspace_path,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def _events(*calls: tuple[str, str, str | None, str]) -> list:
    """(name, arguments, status or None, result) as a transcript has them."""
    events: list = []
    for number, (name, arguments, status, text) in enumerate(calls):
        call = ToolCall(id=f"c{number}", name=name, arguments=arguments)
        envelope = {"at": AT, "offset_s": 0.0, "step": number}
        events.append(
            Reply(n=len(events), text="", tool_calls=(call,), stop_reason="tool_calls", **envelope)
        )
        if status != "bad_call":
            events.append(ToolCallStarted(n=len(events), call=call, **envelope))
        if status:
            events.append(
                ToolResult(
                    n=len(events), call_id=call.id, name=name, status=status, text=text, **envelope
                )
            )
    return events


def test_calls_are_paired_with_their_results() -> None:
    steps = tool_steps(
        _events(
            ("bash", '{"command": "ls"}', "ok", "a"),
            ("bash", "{broken", "bad_call", "not JSON"),
            ("submit", "", None, ""),
        )
    )
    assert [(s.name, s.arguments, s.result, s.is_error) for s in steps] == [
        ("bash", {"command": "ls"}, "a", False),
        ("bash", None, "not JSON", True),
        ("submit", {}, None, False),
    ]


def test_files_are_rebuilt_from_writes_and_edits_of_both_dialects() -> None:
    steps = tool_steps(
        _events(
            ("write", '{"path": "a.py", "content": "x = 1\\ny = 2\\n"}', "ok", ""),
            ("edit", '{"path": "a.py", "old": "x = 1", "new": "x = 3"}', "ok", ""),
            ("edit", '{"path": "./a.py", "oldText": "y", "newText": "z"}', "ok", ""),
            ("write", '{"path": "b.py", "content": "no"}', "error", "disk full"),
            (
                "edit",
                '{"path": "a.py", "edits": [{"oldText": "x", "newText": "p"},'
                ' {"oldText": "z", "newText": "q"}]}',
                "ok",
                "",
            ),
        )
    )
    rebuilt = rebuild_files(steps)
    assert rebuilt.files == {"a.py": b"p = 3\nq = 2\n"}
    assert rebuilt.problems == []


def test_what_cannot_be_rebuilt_is_said() -> None:
    steps = tool_steps(
        _events(
            ("edit", '{"path": "made-by-bash.py", "old": "x", "new": "y"}', "ok", ""),
            ("write", '{"path": "a.py"}', "ok", ""),
            ("write", '{"path": 7, "content": ""}', "ok", ""),
            ("bash", '{"command": "touch x"}', "ok", ""),
        )
    )
    rebuilt = rebuild_files(steps)
    assert rebuilt.files == {}
    assert rebuilt.commands == 1
    assert len(rebuilt.problems) == 3
    assert "was not written before" in rebuilt.problems[0]
    assert "no 'content'" in rebuilt.problems[1]


def test_files_outside_the_workspace_are_kept_apart() -> None:
    writes = ["/tmp/x.py", "../x.py", "/w/in.py", "..x.py", "~/y.py", ".", "a\\u0000b"]
    calls = [("write", f'{{"path": "{path}", "content": "1"}}', "ok", "") for path in writes]
    rebuilt = rebuild_files(tool_steps(_events(*calls)), "/w")
    assert sorted(rebuilt.files) == ["..x.py", "in.py"]
    assert sorted(rebuilt.outside) == ["../x.py", "/tmp/x.py", "~/y.py"]
    assert len(rebuilt.problems) == 2


def test_a_folder_in_place_of_a_file_is_said() -> None:
    writes = ["a", "a/b"]
    calls = [("write", f'{{"path": "{path}", "content": "1"}}', "ok", "") for path in writes]
    rebuilt = rebuild_files(tool_steps(_events(*calls)))
    assert rebuilt.files == {"a/b": b"1"}
    assert "'a' gave way to 'a/b'" in rebuilt.problems[0]


def test_a_file_that_no_archive_can_keep_is_said_and_does_not_stop_the_others(
    live: AttemptFolder,
) -> None:
    writes = ["n" * 256, "d/" * 600 + "x", "\\ud800", "e\\u001b[31m", "solution.py"]
    calls = [("write", f'{{"path": "{path}", "content": "1"}}', "ok", "") for path in writes]
    rebuilt = rebuild_files(tool_steps(_events(*calls)))
    assert list(rebuilt.files) == ["e\x1b[31m", "solution.py"]
    assert len(rebuilt.problems) == 3
    assert "".join(rebuilt.problems).isprintable()
    live.seal(live.record, rebuilt.files)


def test_an_edit_must_match_exactly_once() -> None:
    assert apply_edits("a b c", [("b", "x")]) == "a x c"
    for text in ("a c", "b b"):
        with pytest.raises(EditRefused, match="exactly once"):
            apply_edits(text, [("b", "x")])
    with pytest.raises(EditRefused, match="exactly once"):
        apply_edits("a", [("", "x")])
    with pytest.raises(EditRefused, match="overlap"):
        apply_edits("abcd", [("abc", "x"), ("bcd", "y")])


def test_edits_apply_to_the_text_as_it_was() -> None:
    assert apply_edits("one two", [("two", "one"), ("one", "two")]) == "two one"


def test_line_endings_and_the_byte_order_mark_stay() -> None:
    assert apply_edits("\ufeffa\r\nb\r\n", [("a\nb", "x\ny\nz")]) == "\ufeffx\r\ny\r\nz\r\n"


@given(st.text(), st.text(), st.text())
def test_an_edit_changes_only_its_place(before: str, new: str, after: str) -> None:
    old = "\0the old text\0"
    text = before + old + after
    if "\r" not in text + new and not text.startswith("\ufeff") and text.count(old) == 1:
        assert apply_edits(text, [(old, new)]) == before + new + after


@pytest.mark.parametrize(
    ("path", "cwd", "expected"),
    [
        ("a.py", "/w", "a.py"),
        ("./a.py", None, "a.py"),
        ("/w/a.py", "/w", "a.py"),
        ("/w/a.py", "/w/", "a.py"),
        ("./glm5/backwards/a.py", "./glm5/backwards", "a.py"),
        ("/work/a.py", "/w", "/work/a.py"),
        ("../a.py", "/w", "../a.py"),
    ],
)
def test_recorded_paths_become_relative_to_the_workspace(
    path: str, cwd: str | None, expected: str
) -> None:
    assert workspace_path(path, cwd) == expected


@pytest.mark.parametrize(
    ("command", "cwd", "expected"),
    [
        ("cd /w/x && make", "/w/x", "cd /new && make"),
        ("cat /w/x/a.py", "/w/x", "cat /new/a.py"),
        ("cat '/w/x'", "/w/x/", "cat '/new'"),
        ("cat /w/xy /a/w/x", "/w/x", "cat /w/xy /a/w/x"),
        ("ls .", ".", "ls ."),
        ("ls /", "/", "ls /"),
        ("ls", None, "ls"),
    ],
)
def test_the_recorded_folder_is_replaced_only_as_a_whole_path(
    command: str, cwd: str | None, expected: str
) -> None:
    assert relocate(command, cwd, "/new") == expected


@pytest.mark.parametrize(
    ("recorded", "actual"),
    [
        ("passed in 0.03s", "passed in 1.2s"),
        ("real 0m1.234s", "real 1m0.5s"),
        ("took 12 ms", "took 7.25 ms"),
        ("at 2026-04-22T22:48:15.461Z", "at 2026-11-30T01:02:03Z"),
        ("[12:00:01] start", "[23:59:59] start"),
        ("Mon Nov 30 18:20:51 UTC 2026", "Tue Dec  1 08:20:51 UTC 2026"),
        ("<f at 0x7f5b3175ea50>", "<f at 0x7ffff175ea50>"),
        ('File "/home/me/w/a.py", line 3', 'File "/workspace/a.py", line 3'),
        ("wrote /tmp/tmpab12cd34/x", "wrote /tmp/tmpzz99yy88/x"),
        ("killed pid 123", "killed pid 4567"),
        ("\x1b[32mok\x1b[0m", "ok"),
        ("10%|#         | 1/10\r100%|##########| 10/10\ndone", "100%|##########| 10/10\ndone"),
        ("a  \nb", "a\nb\n"),
    ],
)
def test_known_noise_is_equivalent(recorded: str, actual: str) -> None:
    comparison = compare(recorded, actual)
    assert comparison.kind == "equivalent"
    assert comparison.noise
    assert compare(actual, recorded).kind == "equivalent"
    assert compare(actual, actual).kind == "identical"


@pytest.mark.parametrize(
    ("recorded", "actual"),
    [
        ("max|err| = 5.71e-10", "max|err| = 5.72e-10"),
        ("exit 0", "exit 1"),
        ("0xdeadbeef", "0xdeadbee0"),
        ("line 3", "line 4"),
        ("a/b/c.py", "a/b/d.py"),
        ("12 tests", "13 tests"),
        ("PASS", ""),
        ("shape (4, 16, 64)", "shape (4, 16, 63)"),
        ("ratio 1/2", "ratio 1/3"),
        ("5 samples", "6 samples"),
        ("==========\nok", "==========\nno"),
    ],
)
def test_everything_else_diverges(recorded: str, actual: str) -> None:
    assert compare(recorded, actual).kind == "diverged"


def test_a_divergence_says_where_and_shows_both_sides() -> None:
    comparison = compare("in 1.0s\nsame\nerr 1\nmore", "in 2.0s\nsame\nerr 2\nmore")
    assert not comparison.same
    assert comparison.noise == ("duration",)
    assert (comparison.line, comparison.recorded, comparison.actual) == (3, "err 1", "err 2")
    shorter = compare("a\nb", "a")
    assert (shorter.line, shorter.recorded, shorter.actual) == (2, "b", None)


def test_owners_and_times_of_a_listing_are_noise_and_its_sizes_are_not():
    then = (
        "drwxr-xr-x  5 1302522962 1302522962 4096 Nov 30 20:19 .\n"
        "-rw-r--r-- 1 a b 12 Nov 30 20:19 x"
    )
    now = (
        "drwxr-xr-x  5 1304343752 1304343752 4096 Dec  1 08:02 .\n"
        "-rw-r--r-- 1 c d 12 Dec  1  2026 x"
    )
    assert compare(then, now).kind == "equivalent"
    assert compare(then, now.replace(" 12 ", " 13 ")).kind == "diverged"
    assert compare(then, now.replace("drwx", "drw-")).kind == "diverged"
