"""What `check` and `bench` told a session, as events."""

from graders.base import PublicReport
from transcripts.events import BenchRun, CheckRun
from transcripts.writer import TranscriptWriter


def log_report(
    transcript: TranscriptWriter, verb: str, report: PublicReport, step: int, *, soon: bool = True
) -> None:
    """Keep a report of "check" or "bench"; ``soon``: another event follows at once."""
    append = transcript.append_soon if soon else transcript.append
    if verb == "check":
        append(CheckRun, step=step, passed=report.passed, result=report.result)
    else:
        append(
            BenchRun,
            step=step,
            median_ms=report.median_ms,
            device=report.device,
            waited_s=report.waited_s,
            used_mib_before=report.used_mib_before,
        )
