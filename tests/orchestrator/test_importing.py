"""Foreign sessions become attempts that are graded, audited, replayed and shown like our own."""

import json
from pathlib import Path

import pytest

from graders.pipeline import RefereeGrader
from orchestrator.auditing import audit_attempt
from orchestrator.boards.board import build
from orchestrator.errors import UserError
from orchestrator.grading import GradingOptions, regrade
from orchestrator.importing import ImportRequest, import_session
from orchestrator.replaying import execute
from sandboxes.registry import default_kind
from tasks.errors import UnknownTask
from transcripts.checks import attempt_problems
from transcripts.errors import UnknownDialect
from transcripts.store import Archive
from transcripts.words import End, GradeResult, Verdict

PUBLISHED = Path(__file__).parents[3] / "shared" / "cases" / "pi" / "layernorm-backward.jsonl"
published = pytest.mark.skipif(
    not PUBLISHED.exists(), reason=f"the real session {PUBLISHED} is absent"
)


def written_by(log: Path) -> bytes:
    """The content of the log's one write call."""
    for line in log.read_text("utf-8").splitlines():
        for block in json.loads(line).get("message", {}).get("content", []):
            if isinstance(block, dict) and block.get("name") == "write":
                return block["arguments"]["content"].encode()
    raise AssertionError("no write call")


def pi_log(path: Path, *messages: dict[str, object], broken: str = "") -> Path:
    """A small pi session of our own."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05.000Z"}
    lines = [json.dumps({**header, "cwd": "/home/somebody/work"})]
    parent = None
    for number, message in enumerate(messages):
        entry = {"type": "message", "id": f"m{number}", "parentId": parent, "message": message}
        lines.append(json.dumps({**entry, "timestamp": "2026-01-02T03:04:06.000Z"}))
        parent = f"m{number}"
    path.write_text("\n".join([*lines, broken] if broken else lines) + "\n")
    return path


def asks(text: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def writes(path: str, content: str) -> tuple[dict[str, object], dict[str, object]]:
    call = {"type": "toolCall", "id": "c1", "name": "write"}
    arguments = {"path": path, "content": content}
    answer = {
        "role": "assistant", "model": "some-model", "provider": "somebody", "stopReason": "toolUse",
        "content": [{**call, "arguments": arguments}],
        "usage": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
    }  # fmt: skip
    text = f"Successfully wrote {len(content)} bytes to {path}"
    result = {
        "role": "toolResult", "toolCallId": "c1", "toolName": "write", "isError": False,
        "content": [{"type": "text", "text": text}],
    }  # fmt: skip
    return answer, result


@pytest.mark.alone
@published
def test_the_published_session_is_graded_audited_replayed_and_on_the_board(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    done = import_session(archive, ImportRequest(PUBLISHED, "layernorm-backward"))
    folder = done.folder
    assert folder.record.entrant.name == "glm-5"
    assert folder.record.entrant.effort == "off"
    assert (folder.submission_dir / "layer_norm.py").read_bytes() == written_by(PUBLISHED)
    assert (folder.path / f"source.{PUBLISHED.name}").read_bytes() == PUBLISHED.read_bytes()

    replay = execute(folder, default_kind())
    assert replay.faithful
    assert [step.step.name for step in replay.steps] == ["write", "bash"]
    assert replay.same_files == ["layer_norm.py"]

    grade = regrade(folder, RefereeGrader(), GradingOptions(tier="quick"))
    assert grade.result is GradeResult.PASS
    assert audit_attempt(folder).verdict is Verdict.CLEAN
    (board,) = build(Archive.open(archive.path), "rounds")
    assert "imported" in board.model_dump_json()
    assert attempt_problems(folder) == []


def test_a_session_in_another_folder_is_rebuilt_in_the_workspace(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    answer, result = writes("/home/somebody/work/solution.py", "x = 1\n")
    log = pi_log(tmp_path / "log.jsonl", asks("do it"), answer, result)
    folder = import_session(archive, ImportRequest(log, "kv-cache")).folder
    assert (folder.submission_dir / "solution.py").read_text() == "x = 1\n"
    assert execute(folder, default_kind()).faithful


def test_a_result_that_differs_is_said_with_both_sides(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    answer, result = writes("solution.py", "x = 1\n")
    result["content"] = [{"type": "text", "text": "Successfully wrote 7 bytes to solution.py"}]
    log = pi_log(tmp_path / "log.jsonl", asks("do it"), answer, result)
    folder = import_session(archive, ImportRequest(log, "kv-cache")).folder
    (step,) = execute(folder, default_kind()).diverged
    assert step.comparison is not None
    assert step.comparison.recorded == "Successfully wrote 7 bytes to solution.py"
    assert step.comparison.actual == "Successfully wrote 6 bytes to solution.py"


def test_the_same_log_is_imported_once(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    log = pi_log(tmp_path / "log.jsonl", asks("do it"), *writes("solution.py", "x = 1\n"))
    first = import_session(archive, ImportRequest(log, "kv-cache"))
    again = import_session(archive, ImportRequest(log, "kv-cache"))
    assert (first.is_new, again.is_new) == (True, False)
    assert len(list(archive.attempts())) == 1


def test_broken_lines_are_numbered_and_everything_else_is_read(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    messages = (asks("do it"), *writes("solution.py", "x = 1\n"))
    log = pi_log(tmp_path / "log.jsonl", *messages, broken='{"type": "message", "text": "a "b" c"}')
    done = import_session(archive, ImportRequest(log, "kv-cache"))
    assert done.folder.record.source is not None
    assert done.folder.record.source.bad_lines == (5,)
    assert any("line 5" in note for note in done.notes)
    assert (done.folder.submission_dir / "solution.py").exists()


def test_a_name_against_the_log_is_kept_as_a_contradiction(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    log = pi_log(tmp_path / "log.jsonl", asks("do it"), *writes("solution.py", "x = 1\n"))
    request = ImportRequest(log, "kv-cache", model="glm-5", effort="high")
    done = import_session(archive, request)
    assert done.folder.record.entrant.name == "glm-5"
    assert any("some-model" in note for note in done.notes)


def test_a_session_that_wrote_nothing_has_no_submission(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    log = pi_log(tmp_path / "log.jsonl", asks("do it"))
    done = import_session(archive, ImportRequest(log, "kv-cache", model="glm-5"))
    assert done.folder.record.outcome is not None
    assert done.folder.record.outcome.end is End.NO_SUBMISSION


def test_mistakes_are_said_before_anything_is_written(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path / "archive", create=True)
    log = pi_log(tmp_path / "log.jsonl", asks("do it"))
    prose = tmp_path / "notes.txt"
    prose.write_text("not a log\n")
    with pytest.raises(UserError, match="--as"):
        import_session(archive, ImportRequest(log, "kv-cache"))
    with pytest.raises(UnknownTask, match="kv-cache"):
        import_session(archive, ImportRequest(log, "kv-cash", model="m"))
    with pytest.raises(UnknownDialect, match="notes"):
        import_session(archive, ImportRequest(prose, "kv-cache", model="m"))
    with pytest.raises(UserError, match="no file"):
        import_session(archive, ImportRequest(tmp_path / "absent", "kv-cache", model="m"))
    assert list(archive.attempts()) == []
