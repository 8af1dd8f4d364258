import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from transcripts.checks import attempt_problems
from transcripts.dialects import ImportedLog, read_log
from transcripts.errors import UnknownDialect
from transcripts.events import Compaction, Note, Prompt, Reply, ToolResult, UserMessage
from transcripts.folder import AttemptFolder
from transcripts.owner import this_process
from transcripts.replay import rebuild_files, relocate, tool_steps

CASE = Path(__file__).parents[3] / "shared" / "cases" / "pi" / "layernorm-backward.jsonl"
HEADER = {
    "type": "session",
    "version": 3,
    "id": "0197",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "cwd": "/home/me/work",
}


class Log:
    """Builds a session entry by entry, each the child of the one before it."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = [HEADER]
        self.last: str | None = None

    def add(self, parent: str | None = None, **entry: Any) -> str:
        name = f"{len(self.entries):08x}"
        at = f"2026-01-01T00:00:{len(self.entries):02}.000Z"
        parent = parent or self.last
        self.entries.append({"id": name, "parentId": parent, "timestamp": at, **entry})
        self.last = name
        return name

    def user(self, text: str, **more: Any) -> str:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return self.add(type="message", message=message, **more)

    def call(self, name: str, arguments: Any, call_id: str = "c1", **more: Any) -> str:
        block = {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}
        message = {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, block],
            "provider": "zai",
            "model": "glm-5",
            "stopReason": "toolUse",
            "usage": {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2},
            **more,
        }
        return self.add(type="message", message=message)

    def result(self, text: str, name: str, call_id: str = "c1", *, error: bool = False) -> str:
        message = {
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": name,
            "content": [{"type": "text", "text": text}],
            "isError": error,
        }
        return self.add(type="message", message=message)

    def lines(self) -> list[bytes]:
        return [json.dumps(entry).encode() for entry in self.entries]


def _read(folder: Path, lines: Iterable[bytes], ending: bytes = b"\n") -> ImportedLog:
    path = folder / "sesion.jsonl"
    path.write_bytes(ending.join(lines))
    return read_log(path)


def _texts(log: ImportedLog) -> list[str]:
    return [e.text for e in log.events if isinstance(e, Prompt | UserMessage)]


needs_case = pytest.mark.skipif(not CASE.exists(), reason="the shared cases are not here")


@needs_case
def test_the_published_session_is_read_whole() -> None:
    log = read_log(CASE)
    assert (log.dialect, log.version, log.thinking_level) == ("pi", "3", "off")
    assert log.models == (("zai", "glm-5"),)
    assert [event.kind for event in log.events] == [
        *["note"] * 3,
        "prompt",
        *["reply", "tool_call", "tool_result"] * 2,
        "reply",
    ]
    assert [event.n for event in log.events] == list(range(11))
    assert (log.steps, log.finished, log.problems) == (3, True, ())
    assert (log.usage.input_tokens, log.usage.output_tokens) == (5771, 4599)
    assert log.usage.cache_read_tokens == 9536
    assert log.cost_usd is None  # the log says 0, which is no price
    assert log.data == CASE.read_bytes()


@needs_case
def test_the_written_file_is_rebuilt_byte_for_byte() -> None:
    log = read_log(CASE)
    steps = tool_steps(log.events)
    assert [step.name for step in steps] == ["write", "bash"]
    rebuilt = rebuild_files(steps, log.cwd)
    raw = [json.loads(line) for line in CASE.read_bytes().splitlines()]
    content = raw[4]["message"]["content"][1]["arguments"]["content"]
    assert rebuilt.files == {"layer_norm.py": content.encode()}
    assert rebuilt.commands == 1
    assert rebuilt.problems == []
    # pi counts UTF-16 units and calls them bytes.
    units = len(content.encode("utf-16-le")) // 2
    assert steps[0].result == f"Successfully wrote {units} bytes to layer_norm.py"


@needs_case
def test_the_recorded_folder_is_found_in_the_command() -> None:
    log = read_log(CASE)
    command = tool_steps(log.events)[1].arguments["command"]
    assert relocate(command, log.cwd, "/workspace") == "cd /workspace && python layer_norm.py"


@needs_case
def test_an_imported_session_is_archived_without_loss(live: AttemptFolder) -> None:
    log = read_log(CASE)
    with live.open_writer(this_process(), durable=False) as writer:
        copied = [writer.copy(event) for event in log.events]
    assert copied == list(log.events)
    live.add_source(log.file_name, log.data)
    live.seal(live.record, rebuild_files(tool_steps(log.events), log.cwd).files)
    assert attempt_problems(live) == []
    source = live.path / "source.layernorm-backward.jsonl"
    assert hashlib.sha256(source.read_bytes()).hexdigest() == log.sha256
    # and each line of the original is in an event too
    raws = [getattr(event, "raw", None) for event in live.events()]
    assert all(json.loads(line) in raws for line in CASE.read_bytes().splitlines())


def test_several_user_messages_follow_the_prompt(tmp_path: Path) -> None:
    log = Log()
    log.user("first")
    log.add(type="message", message={"role": "user", "content": "second, a plain string"})
    log.user("third")
    read = _read(tmp_path, log.lines())
    assert _texts(read) == ["first", "second, a plain string", "third"]
    assert [type(e) for e in read.events[1:]] == [Prompt, UserMessage, UserMessage]


def test_only_the_branch_of_the_last_entry_is_the_session(tmp_path: Path) -> None:
    log = Log()
    start = log.user("start")
    log.user("abandoned")
    log.user("abandoned too")
    log.user("taken", parent=start)
    read = _read(tmp_path, log.lines())
    assert _texts(read) == ["start", "taken"]
    kept = [e.raw for e in read.events if isinstance(e, Note) and e.topic == "other_branch"]
    assert kept == log.entries[2:4]


def test_a_compaction_names_the_first_event_that_was_kept(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    kept = log.user("two")
    log.add(type="compaction", summary="so far", firstKeptEntryId=kept, tokensBefore=50_000)
    (event,) = [e for e in _read(tmp_path, log.lines()).events if isinstance(e, Compaction)]
    assert (event.summary, event.kept_from) == ("so far", 2)


def test_changes_of_model_and_level_are_kept(tmp_path: Path) -> None:
    log = Log()
    log.add(type="model_change", provider="zai", modelId="glm-5")
    log.add(type="thinking_level_change", thinkingLevel="low")
    log.add(type="model_change", provider="openai", modelId="gpt-5")
    log.add(type="thinking_level_change", thinkingLevel="high")
    read = _read(tmp_path, log.lines())
    assert read.models == (("zai", "glm-5"), ("openai", "gpt-5"))
    assert read.thinking_level == "high"


def test_replies_results_and_errors_become_events(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.call("bash", {"command": "false"})
    log.result("exit 1", "bash", error=True)
    log.call("bash", {"command": "sleep 9"}, call_id="c2")  # no result: it was cut off
    read = _read(tmp_path, log.lines())
    reply = next(e for e in read.events if isinstance(e, Reply))
    assert (reply.reasoning, reply.stop_reason, reply.served_model) == ("hm", "tool_calls", "glm-5")
    assert reply.usage.cache_write_5m_tokens == 2
    result = next(e for e in read.events if isinstance(e, ToolResult))
    assert (result.status, result.text) == ("error", "exit 1")
    steps = tool_steps(read.events)
    assert [(step.is_error, step.result) for step in steps] == [(True, "exit 1"), (False, None)]


def test_cost_is_known_only_when_every_answer_has_one(tmp_path: Path) -> None:
    log = Log()
    priced = {"input": 1, "output": 1, "cost": {"total": 0.25}}
    log.call("bash", {}, usage=priced)
    assert _read(tmp_path, log.lines()).cost_usd == 0.25
    log.call("bash", {}, usage={"input": 1, "output": 1, "cost": {"total": 0}})
    assert _read(tmp_path, log.lines()).cost_usd is None


def test_unknown_entries_and_roles_are_kept(tmp_path: Path) -> None:
    log = Log()
    log.add(type="label", targetId="1", label="checkpoint")
    log.add(type="from_the_future", data=[1])
    log.add(type="message", message={"role": "bashExecution", "command": "ls", "output": "a"})
    log.add(type="custom_message", customType="x", content="injected", display=False)
    read = _read(tmp_path, log.lines())
    assert [e.raw for e in read.events] == log.entries
    assert read.problems == ()


def test_a_list_without_a_tree_is_read_in_order(tmp_path: Path) -> None:
    entries = [{"type": "session", "id": "1", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/w"}]
    entries += [
        {"type": "message", "timestamp": "2026-01-01T00:00:01Z", "message": m}
        for m in ({"role": "user", "content": "a"}, {"role": "user", "content": "b"})
    ]
    read = _read(tmp_path, [json.dumps(entry).encode() for entry in entries])
    assert (_texts(read), read.version) == (["a", "b"], "1")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_byte_order_mark_and_either_line_ending_are_fine(tmp_path: Path, ending: bytes) -> None:
    log = Log()
    log.user("one")
    log.user("two")
    first, *rest = log.lines()
    read = _read(tmp_path, [b"\xef\xbb\xbf" + first, *rest, b""], ending)
    assert (_texts(read), read.problems) == (["one", "two"], ())


def test_broken_lines_are_numbered_and_kept_and_the_rest_is_read(tmp_path: Path) -> None:
    log = Log()
    for number in range(120):
        log.user(f"message {number}")
    lines = log.lines()
    for number in (20, 60, 100):  # a careless redaction left a quote
        lines[number] = lines[number].replace(b"message", b'"mess"age')
    read = _read(tmp_path, [*lines, b""])
    assert read.bad_lines == (21, 61, 101)
    assert len(_texts(read)) == 117
    kept = [e.text.encode() for e in read.events if isinstance(e, Note) and e.topic == "bad_line"]
    assert kept == [lines[20], lines[60], lines[100]]


def test_two_objects_on_a_line_are_both_read(tmp_path: Path) -> None:
    log = Log()
    for text in ("one", "two", "three"):
        log.user(text)
    header, one, two, three = log.lines()
    read = _read(tmp_path, [header, one + two, three + b" trailing"])
    assert _texts(read) == ["one", "two", "three"]
    assert read.bad_lines == (2, 3)
    assert "2 objects on one line" in [problem.reason for problem in read.problems]


def test_a_torn_last_line_is_said(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    log.user("two")
    *whole, last = log.lines()
    read = _read(tmp_path, [*whole, last[:-9]])
    assert _texts(read) == ["one"]
    assert [tuple(problem) for problem in read.problems] == [(3, "torn last line")]


def test_bytes_that_are_no_utf8_come_back_as_they_were(tmp_path: Path) -> None:
    log = Log()
    log.call("write", {"path": "a.bin", "content": "caf# x"})
    log.result("ok", "write")
    lines = [line.replace(b"#", b"\xe9") for line in log.lines()]
    read = _read(tmp_path, lines)
    assert read.bad_lines == (2,)
    assert "invalid UTF-8" in read.problems[0].reason
    assert rebuild_files(tool_steps(read.events)).files == {"a.bin": b"caf\xe9 x"}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "message", "message": None},
        {"type": "message", "message": {"role": "assistant", "content": 7}},
        {"type": "message", "message": {"role": "assistant", "usage": {"input": "many"}}},
        {"type": "message"},
        {"type": ["message"]},
        {"type": "compaction", "firstKeptEntryId": ["x"]},
        {"type": "message", "message": {"role": "user", "content": 1e999}},
    ],
)
def test_entries_of_an_unexpected_form_never_stop_the_reading(
    tmp_path: Path, entry: dict[str, Any]
) -> None:
    log = Log()
    log.user("before")
    log.add(**entry)
    log.user("after")
    read = _read(tmp_path, log.lines())
    assert _texts(read)[0] == "before"
    assert _texts(read)[-1] == "after"


def test_very_deep_json_is_a_bad_line(tmp_path: Path) -> None:
    log = Log()
    log.user("before")
    read = _read(tmp_path, [*log.lines(), b'{"a":' * 100_000 + b"1" + b"}" * 100_000])
    assert _texts(read) == ["before"]
    assert read.bad_lines == (3,)


def test_what_is_no_known_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"type": "assistant", "uuid": "1"}\n')
    with pytest.raises(UnknownDialect, match="pi"):
        read_log(path)
    with pytest.raises(UnknownDialect, match="no dialect 'pie'"):
        read_log(path, "pie")


def test_a_session_without_its_header_is_recognised_by_its_tree(tmp_path: Path) -> None:
    log = Log()
    for text in ("one", "two", "three"):
        log.user(text)
    read = _read(tmp_path, [b"{broken", *log.lines()[1:]])
    assert _texts(read) == ["one", "two", "three"]
    assert read.bad_lines == (1,)
