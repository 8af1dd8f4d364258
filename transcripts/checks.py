"""What does not verify in one attempt, said in words with the place."""

from pathlib import Path

from transcripts import added, chain, frames, sealing
from transcripts.blobs import get_blob
from transcripts.errors import ArchiveFault, Corrupt
from transcripts.events import ToolResult
from transcripts.folder import AttemptFolder
from transcripts.records import Audit, Grade


def attempt_problems(attempt: AttemptFolder) -> list[str]:
    """All problems of an attempt; an empty list means that everything verifies."""
    problems: list[str] = []
    for check in (_record, _seal, _transcript, _index, _submission, _added):
        try:
            problems += check(attempt)
        except (Corrupt, ArchiveFault, OSError) as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))


def live_damage(attempt: AttemptFolder) -> list[str]:
    """Why an unsealed attempt cannot be gone on with; a torn last line is no damage."""
    problems = [line for line in attempt_problems(attempt) if not line.endswith("torn, dropped")]
    packed = attempt.path / sealing.PACKED_TRANSCRIPT
    if packed.exists() and not (attempt.path / sealing.LIVE_TRANSCRIPT).exists():
        problems.append(f"{packed.name} is there without its seal and without the live transcript")
    return problems


def _record(attempt: AttemptFolder) -> list[str]:
    _ = attempt.record
    return []


def _seal(attempt: AttemptFolder) -> list[str]:
    found = attempt.load_seal()
    if found is None:
        return []
    seal, problems = found[0], []
    if seal.attempt_id != attempt.id:
        problems.append(f"seal.json: it is of attempt {seal.attempt_id}")
    actual = sealing.digests(attempt.path)
    for name in sorted(seal.files.keys() | actual.keys()):
        if name not in actual:
            problems.append(f"{name}: missing, the seal names it")
        elif name not in seal.files:
            problems.append(f"{name}: added after the seal")
        elif actual[name] != seal.files[name]:
            problems.append(f"{name}: changed after the seal")
    return problems


def _transcript(attempt: AttemptFolder) -> list[str]:
    """Follow the chain and parse every event; look up the blobs they name."""
    problems, links = [], chain.Chain(attempt.id)
    for line in links.follow(attempt.lines()):
        if line.problem:
            problems.append(f"transcript {line.problem}")
        if line.body is None:
            continue
        try:
            event = chain.load(line.body)
        except ValueError:
            problems.append(f"transcript line {line.number + 1}: not an event")
            continue
        if event.n != line.number:
            problems.append(f"transcript line {line.number + 1}: numbered {event.n}")
        if isinstance(event, ToolResult) and event.blob:
            problems += _blob(attempt.path / sealing.BLOBS, event, line.number)
    found = attempt.load_seal()
    if found and (links.link, links.count) != (found[0].chain, found[0].events):
        problems.append("transcript: its end is not the one that the seal names")
    return problems


def _blob(folder: Path, event: ToolResult, number: int) -> list[str]:
    assert event.blob is not None
    try:
        get_blob(folder, event.blob)
    except Corrupt as error:
        return [f"transcript line {number + 1}: {error}"]
    return []


def _index(attempt: AttemptFolder) -> list[str]:
    if not attempt.is_sealed:
        return []
    place = attempt.path / sealing.INDEX
    index = frames.load_index(place.read_bytes(), place)
    if index != frames.rebuild_index(attempt.path / sealing.PACKED_TRANSCRIPT):
        return [f"{sealing.INDEX}: does not fit the transcript; `archive repair` rebuilds it"]
    return []


def _submission(attempt: AttemptFolder) -> list[str]:
    if not attempt.is_sealed:
        return []
    if attempt.record.submission != sealing.submission_digests(attempt.path):
        return ["submission: not the files that attempt.json lists"]
    return []


def _added(attempt: AttemptFolder) -> list[str]:
    problems = []
    for path in attempt.added_files():
        try:
            _load_added(path, attempt.seal_digest)
        except Corrupt as error:
            problems.append(str(error))
    return problems


def _load_added(path: Path, seal_digest: str | None) -> None:
    match path.parent.name:
        case "grades":
            added.load_as(path, Grade, seal_digest)
        case "audits":
            added.load_as(path, Audit, seal_digest)
        case _:
            added.load(path)
