import os
import resource
import threading
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from transcripts.blobs import INLINE_BYTES, SHOWN_CHARACTERS
from transcripts.checks import attempt_problems
from transcripts.errors import ArchiveFull, ClaimHeld
from transcripts.events import Note, Prompt, Reply, SessionStart, ToolCall, ToolResult, UserMessage
from transcripts.folder import AttemptFolder
from transcripts.owner import this_process

ME = this_process()


def test_events_come_back_as_appended(live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        written = [
            writer.append(SessionStart, attempt_id=live.id, owner=ME),
            writer.append(Prompt, role="user", text="write a kernel"),
            writer.append(
                Reply,
                step=0,
                text="",
                stop_reason="tool_calls",
                tool_calls=(ToolCall(id="1", name="bash", arguments="{not json"),),
                raw={"big": 10**30, "small": 1e-300, "nested": [None, True, "\u2028"]},
            ),
        ]
        assert writer.next_n == 3
    assert list(live.events()) == written
    assert [event.n for event in written] == [0, 1, 2]
    assert attempt_problems(live) == []


@pytest.mark.parametrize(
    "text", ["\0", "\ud800", "a\udcffb", "\r\n\r", "\u2028\u2029\x85", "\x1b[31m", "\U0001f9ea"]
)
def test_any_text_survives(live: AttemptFolder, text: str) -> None:
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text=text, raw={"as": [text]})
    live.seal(live.record, {})
    (event,) = live.events()
    assert isinstance(event, UserMessage)
    assert (event.text, event.raw) == (text, {"as": [text]})
    assert attempt_problems(live) == []


def test_a_second_writer_is_refused_until_the_first_closes(live: AttemptFolder) -> None:
    first = live.open_writer(ME)
    assert live.is_being_written
    with pytest.raises(ClaimHeld, match=ME):
        live.open_writer(ME)
    first.close()
    assert not live.is_being_written
    live.open_writer(ME).close()


def test_numbers_and_the_chain_go_on_after_reopening(live: AttemptFolder) -> None:
    for number in range(3):
        with live.open_writer(ME) as writer:
            assert writer.append(UserMessage, text=str(number)).n == number
            assert writer.repaired is None
    assert attempt_problems(live) == []


def test_a_torn_last_line_is_set_aside_and_said(live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text="whole")
    torn = b'{"n":1,"kind":"user_mess'
    with (live.path / "transcript.jsonl").open("ab") as file:
        file.write(torn)
    assert len(list(live.events())) == 1
    assert any("torn" in problem for problem in live.problems)
    with live.open_writer(ME) as writer:
        assert writer.repaired is not None
        assert str(len(torn)) in writer.repaired
        assert writer.append(UserMessage, text="after").n == 1
    assert [path.read_bytes() for path in (live.path / "torn").iterdir()] == [torn]
    assert attempt_problems(live) == []


def test_a_broken_line_in_the_middle_hides_only_itself(live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        for number in range(5):
            writer.append(UserMessage, text=f"message {number}")
    path = live.path / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"garbage\n", *lines[3:]]))
    texts = [event.text for event in live.events() if isinstance(event, UserMessage)]
    assert texts == ["message 0", "message 1", "message 3", "message 4"]
    problems = attempt_problems(live)
    assert any("line 3: not a transcript line" in problem for problem in problems)
    with live.open_writer(ME) as writer:  # and the transcript goes on
        assert writer.append(UserMessage, text="later").n == 5
    assert len(list(live.events())) == 5


@pytest.mark.parametrize("cut", ["change", "drop", "swap", "repeat"])
def test_every_tampering_breaks_the_chain(live: AttemptFolder, cut: str) -> None:
    with live.open_writer(ME) as writer:
        for number in range(5):
            writer.append(UserMessage, text=f"message {number}")
    path = live.path / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    match cut:
        case "change":
            lines[2] = lines[2].replace(b"message 2", b"message 9")
        case "drop":
            del lines[2]
        case "swap":
            lines[2], lines[3] = lines[3], lines[2]
        case "repeat":
            lines.insert(2, lines[2])
    path.write_bytes(b"".join(lines))
    assert any("chain breaks" in problem for problem in attempt_problems(live))


def test_a_transcript_does_not_pass_as_another_attempts(
    live: AttemptFolder, archive, attempts
) -> None:
    with live.open_writer(ME) as writer:
        writer.append(UserMessage, text="mine")
    other = archive.create(attempts())
    (other.path / "transcript.jsonl").write_bytes((live.path / "transcript.jsonl").read_bytes())
    assert any("line 1: the chain breaks" in problem for problem in attempt_problems(other))


def test_a_full_disk_damages_nothing_and_the_session_goes_on(
    live: AttemptFolder, in_child: Callable[[Callable[[], None]], int]
) -> None:
    def fill() -> None:
        writer = live.open_writer(ME)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        written = 0
        with pytest.raises(ArchiveFull, match="free some space"):
            while True:
                writer.append(UserMessage, text="x" * 999)
                written += 1
        whole = (live.path / "transcript.jsonl").read_bytes()
        assert whole.endswith(b"\n")
        assert whole.count(b"\n") == written == writer.next_n
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert writer.append(UserMessage, text="space is back").n == written

    assert in_child(fill) == 0
    assert attempt_problems(live) == []
    *_, last = live.events()
    assert isinstance(last, UserMessage)
    assert last.text == "space is back"


def test_a_refused_event_leaves_no_trace(live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        with pytest.raises(ValidationError):
            writer.append(UserMessage, txt="misspelled")
        assert writer.append(UserMessage, text="right").n == 0
    assert attempt_problems(live) == []


def test_known_secrets_never_reach_the_disk(live: AttemptFolder) -> None:
    key = "sk-live-0123456789"
    with live.open_writer(ME, {"ZAI_API_KEY": key}) as writer:
        event = writer.append(
            ToolResult,
            step=0,
            call_id="1",
            name="bash",
            status="ok",
            text=f"KEY={key}",
            raw={key: [f"Bearer {key}"]},
        )
        shown, ref = writer.put_text(f"{key} " * 10_000)
    assert event.text == "KEY=[secret ZAI_API_KEY]"
    assert ref is not None
    assert key not in shown
    assert key.encode() not in live.blob(ref)
    assert key.encode() not in (live.path / "transcript.jsonl").read_bytes()
    assert list(live.events()) == [event]
    assert attempt_problems(live) == []


def test_large_content_goes_to_a_blob_once(live: AttemptFolder) -> None:
    text = "head" + "\ud800é" * INLINE_BYTES + "tail"
    with live.open_writer(ME) as writer:
        shown, ref = writer.put_text(text)
        assert writer.put_text(text) == (shown, ref)
        assert writer.put_text("short") == ("short", None)
    assert ref is not None
    assert shown.startswith("head")
    assert shown.endswith("tail")
    assert len(shown) < 2 * SHOWN_CHARACTERS + 100
    assert live.blob(ref).decode("utf-8", "surrogatepass") == text
    assert len(list((live.path / "blobs").iterdir())) == 1


def test_threads_share_a_writer(live: AttemptFolder) -> None:
    with live.open_writer(ME) as writer:
        threads = [
            threading.Thread(
                target=lambda: [writer.append(Note, topic="t", text="x") for _ in range(20)]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [event.n for event in live.events()] == list(range(80))
    assert attempt_problems(live) == []


def test_a_closed_transcript_is_free_while_a_fork_still_shares_its_descriptor(
    live: AttemptFolder,
) -> None:
    """As when another session's sandbox is being started in a thread beside it."""
    writer = live.open_writer(ME)
    reader, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        os.read(reader, 1)  # holds every descriptor of its parent until told to go
        os._exit(0)
    try:
        writer.close()
        live.open_writer(ME).close()
    finally:
        os.close(release)
        os.close(reader)
        os.waitpid(pid, 0)
