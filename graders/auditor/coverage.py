"""What an audit looked at, and what was not there or could not be read: said, never assumed."""

from collections.abc import Sequence

from graders.auditor.base import AuditInput
from graders.auditor.checking import Checked
from graders.auditor.closure import C_SUFFIXES, PYTHON_SUFFIXES
from graders.auditor.verdict import Decision
from graders.mechanisms import MECHANISMS
from transcripts.records import Grade
from transcripts.words import EvidenceKind


def coverage(
    given: AuditInput, grades: Sequence[Grade], done: Checked
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds of evidence that were read whole, and what is missing."""
    unread, missing = _source(given)
    if given.files and not unread and EvidenceKind.SOURCE not in done.unfinished:
        kinds = ["source"]
    else:
        kinds = []
    if given.grades:
        missing += _unrun(given.grades)
        if EvidenceKind.BEHAVIOUR not in done.unfinished:
            kinds.append("behaviour")
    else:
        missing.append("behaviour: void grades only" if grades else "behaviour: no grade")
    if given.events is None:
        missing.append("transcript: none")
    elif EvidenceKind.TRANSCRIPT not in done.unfinished and not _of_steps(given.notes):
        kinds.append("transcript")
    return tuple(kinds), (*missing, *done.problems)


def _source(given: AuditInput) -> tuple[bool, list[str]]:
    """Whether code was left unread, and all that is to be said of the source."""
    if not given.files and not given.left_out:
        return True, ["source: nothing was handed in"]
    lines = [f"source: {path} {why}" for path, why in given.left_out.items()]
    lines += given.notes
    suffixes = (*PYTHON_SUFFIXES, *C_SUFFIXES)
    unread = any(path.endswith(suffixes) for path in given.left_out) or not given.files
    try:
        closure = given.closure
    except Exception as error:  # noqa: BLE001 - as the checks, it was stopped by the source
        return True, [*lines, f"source: could not be followed ({type(error).__name__})"]
    opaque = [f"{path} {why}" for path, why in closure.opaque.items()]
    lines += [f"source: {why}" for why in dict.fromkeys([*opaque, *closure.unread])]
    lines += [f"source: {path} is binary" for path in closure.binaries]
    return unread or bool(closure.unread), lines


def _of_steps(notes: Sequence[str]) -> bool:
    return any(note.startswith("transcript:") for note in notes)


def _unrun(grades: Sequence[Grade]) -> list[str]:
    ran = {check.check for grade in grades for check in grade.checks if check.passed is not None}
    unrun = {
        check.check: check.detail
        for grade in grades
        for check in grade.checks
        if check.passed is None and check.check not in ran
    }
    lines = [
        f"behaviour: probe `{name}` did not run" + (f" ({why})" if why else "")
        for name, why in sorted(unrun.items())
    ]
    named = {check.mechanism for grade in grades for check in grade.checks if check.mechanism}
    unknown = sorted(named - MECHANISMS.keys())
    return lines + [f"behaviour: the mechanism `{name}` is not known here" for name in unknown]


def summary(decision: Decision, coverage: tuple[str, ...], missing: tuple[str, ...]) -> str:
    """One line: the verdict, its ground and what was seen."""
    looked = " and ".join(coverage) or "nothing"
    without = sorted({line.split(":")[0] for line in missing} - set(coverage))
    seen = looked + (f", no {', no '.join(without)}" if without else "")
    if decision.grounds:
        ground = decision.grounds[0]
        lines = f":{ground.lines[0]}" if ground.lines else ""
        return f"{decision.verdict}: {ground.why} ({ground.place}{lines}); seen: {seen}"
    return f"{decision.verdict}: {decision.rule.meaning}; seen: {seen}"
