"""What a hostile or broken model, agent or archive does to a session, and what comes of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graders.pipeline import RefereeGrader
from model_servers import QUICK, Canned, CannedServer
from orchestrator.grading import GradingOptions, regrade_all
from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from transcripts.checks import attempt_problems
from transcripts.events import Submission
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End
from workspaces import text_in

SECRET = "sk-test-0123456789abcdef"


def chunk(**delta: Any) -> bytes:
    finish = delta.pop("finish", None)
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode() + b"\n\n"


def answer(*calls: tuple[str, dict[str, Any] | str], text: str = "") -> Canned:
    """A streamed answer with tool calls."""
    tools = [
        {
            "index": n,
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
        }
        for n, (name, a) in enumerate(calls)
    ]
    finish = "tool_calls" if tools else "stop"
    first = chunk(role="assistant", content=text, **({"tool_calls": tools} if tools else {}))
    return Canned([first, chunk(finish=finish), b"data: [DONE]\n\n"])


SUBMIT = answer(("write", {"path": "solution.py", "content": "x = 1\n"}), ("submit", {}))

Playing = Callable[..., AttemptFolder]


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    """Run one session against answers in turn, always the same entrant, and return its attempt."""
    server = CannedServer()

    def play(*answers: Canned, **changes: Any) -> AttemptFolder:
        server.bodies.clear()
        server.answers = list(answers)
        request = SweepRequest(
            archive=tmp_path / "archive",
            models=[f"{server.base_url()}/v1#hostile"],
            deck="rounds",
            tasks=["kv-cache"],
            **{"sandbox": "bubblewrap", **changes},
        )
        with prepared(request, Progress(live=False)) as sweep:
            result = sweep.run_sessions()
            assert not result.defects
        return list(Archive.open(tmp_path / "archive").attempts())[-1]

    yield play
    server.close()


def test_a_full_context_ends_the_session_as_a_limit_with_its_last_state(playing: Playing) -> None:
    too_long = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    folder = playing(
        answer(("write", {"path": "solution.py", "content": "x = 1\n"})),
        Canned([json.dumps(too_long).encode()], 400, {"Content-Type": "application/json"}),
    )
    assert folder.is_sealed
    assert folder.record.outcome is not None
    assert (folder.record.outcome.end, folder.record.outcome.reason) == (End.LIMIT, "context")
    assert (folder.submission_dir / "solution.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    "command",
    [
        "touch $'\\xff'; mkdir $'\\xfe'",
        "python3 -c \"open(b'\\xff' * 255, 'w').write('x')\"",
        "d=$(printf 'n%.0s' $(seq 250)); for i in $(seq 14); do mkdir -p $d; cd $d; done; touch f",
        "mkfifo pipe; ln -s /etc/passwd link; ln -s . loop; mkdir '-rf'; touch $'a\\nb' '...'",
        "rm -rf .archive .grader reference.py; mkdir reference.py; touch .archive .grader",
        "for i in 1 2 3 4 5; do head -c 15000000 /dev/zero > big$i; done",
    ],
)
def test_whatever_files_an_agent_makes_the_session_is_sealed(
    playing: Playing, command: str
) -> None:
    folder = playing(answer(("bash", {"command": command})), SUBMIT)
    assert folder.is_sealed
    assert attempt_problems(folder) == []
    assert (folder.submission_dir / "solution.py").read_text() == "x = 1\n"


def test_what_could_not_be_taken_is_on_the_record(playing: Playing) -> None:
    command = "for i in 1 2 3 4 5 6; do head -c 15000000 /dev/zero > big$i; done"
    folder = playing(answer(("bash", {"command": command})), SUBMIT)
    (hand_in,) = [event for event in folder.events() if isinstance(event, Submission)]
    assert hand_in.left_out
    assert "big" in " ".join(hand_in.left_out)


@pytest.mark.parametrize("arguments", ["[" * 100_000, "{", '{"command": ' + "9" * 5000 + "}"])
def test_hostile_arguments_do_not_wedge_the_session(playing: Playing, arguments: str) -> None:
    folder = playing(answer(("bash", arguments)), SUBMIT)
    assert folder.is_sealed


def test_answers_of_odd_form_are_retried_and_end_as_the_providers_fault(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.models.connect.RetryPolicy", lambda: QUICK)
    usage = {"prompt_tokens": "many", "completion_tokens": [1]}
    odd = b"data: " + json.dumps({"id": "x", "choices": [], "usage": usage}).encode() + b"\n\n"
    folder = playing(Canned([chunk(content="hello", finish="stop"), odd, b"data: [DONE]\n\n"]))
    assert not folder.is_sealed
    assert folder.record.outcome is not None
    assert folder.record.outcome.end is End.PROVIDER_FAULT
    assert folder.record.outcome.reason == "malformed"


def test_a_key_never_reaches_the_archive(
    playing: Playing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAI_API_KEY", SECRET)
    shown = answer(("bash", {"command": "env; cat /proc/*/environ"}), text=f"the key is {SECRET}")
    write = ("write", {"path": f"{SECRET}.txt", "content": f"# {SECRET}\n"})
    solution = ("write", {"path": "solution.py", "content": f"key = '{SECRET}'\n"})
    folder = playing(shown, answer(write, solution, ("submit", {})))
    assert folder.is_sealed
    texts = [event.model_dump_json() for event in folder.events()]
    files = [p for p in folder.path.rglob("*") if p.is_file()]
    assert not [text for text in texts if SECRET in text]
    assert not [p for p in files if SECRET in p.name or SECRET.encode() in p.read_bytes()]
    assert "[secret ZAI_API_KEY]" in (folder.submission_dir / "solution.py").read_text()


# --- damage done to an archive by hand --------------------------------------------------------


@pytest.fixture
def halfway(playing: Playing) -> AttemptFolder:
    """A session that its provider left in the middle."""
    no_key = Canned([b"{}"], 401, {"Content-Type": "application/json"})
    folder = playing(answer(("bash", {"command": "echo kept > kept.txt"})), no_key)
    assert not folder.is_sealed
    return folder


def test_a_tampered_live_transcript_is_not_resumed(
    halfway: AttemptFolder, playing: Playing
) -> None:
    log = halfway.path / "transcript.jsonl"
    log.write_bytes(log.read_bytes().replace(b"echo kept", b"echo lies", 1))
    before = log.read_bytes()
    fresh = playing(SUBMIT)
    assert log.read_bytes() == before
    assert fresh.id != halfway.id
    assert fresh.is_sealed


def test_a_stray_seal_deletes_nothing(halfway: AttemptFolder, tmp_path: Path) -> None:
    (halfway.path / "seal.json").touch()
    before = (halfway.path / "transcript.jsonl").read_bytes()
    (again,) = Archive.open(tmp_path / "archive").attempts()
    assert (again.path / "transcript.jsonl").read_bytes() == before
    assert text_in(again.workspace, "kept.txt") == "kept\n"
    assert any("seal" in problem for problem in again.problems)


def test_a_damaged_submission_is_not_graded(playing: Playing, tmp_path: Path) -> None:
    folder = playing(SUBMIT)
    (folder.submission_dir / "solution.py").write_text("better = True\n")
    said: list[str] = []
    archive = Archive.open(tmp_path / "archive")
    grades = regrade_all(
        archive, list(archive.attempts()), RefereeGrader(), GradingOptions(), said.append
    )
    assert grades == []
    assert "damaged" in said[0]
    assert folder.grades() == []


def test_one_broken_seal_does_not_hold_back_the_others(playing: Playing, tmp_path: Path) -> None:
    broken, whole = playing(SUBMIT), playing(SUBMIT, attempts=2)
    (broken.path / "seal.json").write_text("{}")
    said: list[str] = []
    archive = Archive.open(tmp_path / "archive")
    options = GradingOptions(tier="quick", correctness_only=True)
    grades = regrade_all(archive, list(archive.attempts()), RefereeGrader(), options, said.append)
    assert [grade.attempt_id for grade in grades] == [whole.id]
    assert broken.id in said[0]


def test_a_finished_attempt_without_its_seal_keeps_its_evidence(
    playing: Playing, tmp_path: Path
) -> None:
    folder = playing(SUBMIT)
    shutil.copytree(folder.path, tmp_path / "before")
    (folder.path / "seal.json").unlink()
    packed = folder.path / "transcript.jsonl.zst"
    before = packed.read_bytes()
    playing(SUBMIT)
    assert packed.read_bytes() == before
