"""What goes wrong around a session, how it is injected, and what comes of it: one table.

`docs/faults.md` is written from it (``python tests/support/fault_table.py > docs/faults.md``), and
`tests/faults` holds it against the page and against the tests that it names.
"""

from dataclasses import dataclass

HEAD = """\
# Faults and what comes of them

Written from `tests/support/fault_table.py`; each row names the test that injects the fault by real
means: real sockets, processes, signals, mounts and engines. *End* is what the session's record
says; `-` is none: the session goes on. The ends provider_fault, infra_fault and interrupted never
count against a model: the same command goes on at the last finished step.

| fault | injected by | response | end | test |
| --- | --- | --- | --- | --- |
"""

PROVIDER = "tests/faults/test_providers.py"
MODELS = "tests/orchestrator/models/test_faults.py"
MACHINE = "tests/faults/test_machine.py"
DISK = "tests/contracts/test_sandbox_disk.py"
ENGINE = "tests/faults/test_engine_faults.py"
SIGNALS = "tests/faults/test_signals.py"
STORM = "tests/orchestrator/models/test_accounts.py"


@dataclass(frozen=True)
class Fault:
    """One row."""

    fault: str
    injected: str
    response: str
    end: str  # "end (reason)", or "-"
    test: str  # "file::function"

    @property
    def row(self) -> str:
        """Of the page."""
        file, _, function = self.test.partition("::")
        where = f"`{file.removeprefix('tests/')}` {function.removeprefix('test_')}"
        return f"| {self.fault} | {self.injected} | {self.response} | {self.end} | {where} |"


_FLIGHT = f"{PROVIDER}::test_a_passing_fault_costs_a_retry_and_nothing_else"
_WORDS = f"{PROVIDER}::test_mistakes_of_a_model_are_answered_and_the_session_goes_on"

FAULTS = (
    Fault(
        "429 storm",
        "a server with room for 3 calls, 48 sessions",
        "calls of the account wait in line, half as many at once after each burst; all get through",
        "-",
        f"{STORM}::test_a_429_storm_brings_concurrency_down_and_every_call_through",
    ),
    Fault("429", "an answer with Retry-After", "waited for as asked, tried again", "-", _FLIGHT),
    Fault("overloaded", "529", "backed off, tried again", "-", _FLIGHT),
    Fault("server error", "500, 502", "backed off, tried again", "-", _FLIGHT),
    Fault("dropped stream", "the connection breaks", "tried again, same key", "-", _FLIGHT),
    Fault("truncated stream", "it ends without terminator", "tried again", "-", _FLIGHT),
    Fault("invalid JSON", "half a chunk", "tried again", "-", _FLIGHT),
    Fault("invalid UTF-8", "bytes that are none", "read with replacements", "-", _FLIGHT),
    Fault(
        "silence",
        "keep-alives without tokens",
        "given up after the entry's stall_s, tried again",
        "-",
        f"{MODELS}::test_keep_alives_without_tokens_are_a_stall",
    ),
    Fault(
        "a fault that lasts",
        "every try fails",
        "given up by class; other models' sessions are not touched",
        "provider_fault (server_error)",
        f"{PROVIDER}::test_a_lasting_fault_ends_the_session_as_the_providers",
    ),
    Fault(
        "wrong key",
        "401",
        "never tried again",
        "provider_fault (bad_key)",
        f"{PROVIDER}::test_a_lasting_fault_ends_the_session_as_the_providers",
    ),
    Fault(
        "empty account",
        "402",
        "never tried again, no other call is slowed",
        "provider_fault (quota)",
        f"{PROVIDER}::test_a_lasting_fault_ends_the_session_as_the_providers",
    ),
    Fault("unknown tool", "a call of `shell`", "answered in words", "-", _WORDS),
    Fault("broken arguments", "a call cut in the middle", "answered in words", "-", _WORDS),
    Fault("missing argument", "`bash` without command", "answered in words", "-", _WORDS),
    Fault("refusal", "a reply of refusal alone", "nudged once", "-", _WORDS),
    Fault("empty reply", "no content, no call", "asked to go on", "-", _WORDS),
    Fault("cut reply", "stopped by length", "asked for smaller steps", "-", _WORDS),
    Fault(
        "another model served",
        "an answer that names another",
        "each reply's record names the model that served it",
        "-",
        f"{PROVIDER}::test_the_model_that_served_is_recorded",
    ),
    Fault(
        "clock set forward or back by a day",
        "a preloaded clock of one of two orchestrators on one archive",
        "no claim is lost, no duration is wrong, nothing is run twice",
        "-",
        f"{MACHINE}::test_a_clock_that_jumps_loses_no_claim_and_spoils_no_duration",
    ),
    Fault(
        "two orchestrators on one archive",
        "two processes, one plan",
        "attempts are dealt one by one: each runs once",
        "-",
        f"{MACHINE}::test_a_clock_that_jumps_loses_no_claim_and_spoils_no_duration",
    ),
    Fault(
        "container removed",
        "`docker rm -f` in the middle of a command",
        "left as it is; the next run goes on with the workspace",
        "infra_fault (SandboxGone)",
        f"{ENGINE}::test_a_container_that_is_removed_is_gone_on_with",
    ),
    Fault(
        "engine killed and restarted",
        "kill -9 of dockerd and containerd, then new ones",
        "sessions that lose their container are left; the next run goes on",
        "infra_fault (SandboxGone)",
        f"{ENGINE}::test_an_engine_that_is_killed_and_restarted_is_gone_on_with",
    ),
    Fault(
        "out of memory inside",
        "a command that wants more than its limit",
        "the command fails and the model is told; the sandbox lives",
        "-",
        f"{MACHINE}::test_a_command_that_runs_out_of_memory_is_only_a_failed_command",
    ),
    Fault(
        "disk full, then freed",
        "an archive on a small tmpfs, made larger afterwards",
        "stops, nothing written is damaged; the next run goes on",
        "infra_fault (disk_full)",
        f"{MACHINE}::test_a_full_disk_stops_a_session_that_goes_on_when_there_is_space",
    ),
    Fault(
        "workspace full",
        "commands that write without end, many files, deleted files still open",
        "the command meets `No space left on device` and the model is told; files can be removed",
        "-",
        f"{DISK}::test_a_fast_writer_meets_a_full_disk_and_the_session_goes_on",
    ),
    Fault(
        "disk full under a workspace",
        "two images on a small tmpfs, made larger afterwards",
        "the sandbox ends; what earlier commands wrote is there when there is space",
        "infra_fault (SandboxGone)",
        f"{DISK}::test_what_finished_before_the_hosts_disk_was_full_is_intact_when_there_is_space",
    ),
    Fault(
        "machine stopped",
        "an image copied in the middle of writes",
        "its file system is repaired before it is mounted again",
        "-",
        f"{DISK}::test_what_was_on_the_disk_when_the_machine_stopped_is_repaired",
    ),
    Fault(
        "orchestrator killed",
        "kill -9 at random moments",
        "goes on at the last finished step; a call in flight is told as interrupted",
        "-",
        "tests/chaos/test_kill.py::test_no_step_is_done_twice_and_interrupted_ones_are_told",
    ),
    Fault(
        "Ctrl-C or SIGTERM",
        "the signal, once",
        "running steps end, sessions are left resumable, code 130",
        "interrupted (stop_requested)",
        f"{SIGNALS}::test_one_signal_finishes_the_step_and_leaves_the_session_to_be_resumed",
    ),
    Fault(
        "Ctrl-C twice",
        "the signal again",
        "leaves at once with code 130; the call in flight is told as interrupted",
        "-",
        f"{SIGNALS}::test_a_second_signal_stops_at_once_and_loses_no_finished_step",
    ),
    Fault(
        "a fork while a transcript is closed",
        "a child that shares the descriptor",
        "the transcript is free at once",
        "-",
        "tests/transcripts/test_writer.py::"
        "test_a_closed_transcript_is_free_while_a_fork_still_shares_its_descriptor",
    ),
    Fault(
        "orchestrator of another host gone",
        "signs of life that stop",
        "its attempts are taken over after a minute without a sign, by no clock but one's own",
        "-",
        "tests/transcripts/test_claims.py::test_another_host_is_waited_for_until_it_gives_no_sign",
    ),
)


def end_of(fault: str) -> tuple[str, str]:
    """End and reason that the table promises for a fault."""
    (row,) = [row for row in FAULTS if row.fault == fault]
    end, _, reason = row.end.partition(" (")
    return end, reason.removesuffix(")")


def page() -> str:
    """The whole of docs/faults.md."""
    return HEAD + "".join(f"{row.row}\n" for row in FAULTS)


if __name__ == "__main__":
    print(page(), end="")
