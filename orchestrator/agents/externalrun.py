"""One session of a foreign harness, from its start to a typed end."""

import math
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from graders.base import PublicReport
from orchestrator.agents.agreement import disagreements
from orchestrator.agents.asking import SERVED_MODEL
from orchestrator.agents.base import SessionContext
from orchestrator.agents.harnesses import base as harnesses
from orchestrator.agents.harnesses.base import Harness, Launch, Route
from orchestrator.agents.reports import log_report
from orchestrator.agents.wirelog import WireLog
from orchestrator.gateway.admission import Admission
from orchestrator.gateway.relay import HUNG_UP
from orchestrator.gateway.server import Gateway
from orchestrator.gateway.terms import Refused, Terms, Tunnelled
from orchestrator.models.accounts import account_of
from orchestrator.models.connect import provider_url
from orchestrator.models.errors import ContextOverflow
from orchestrator.turns.desk import SessionDesk
from sandboxes.base import Sandbox
from sandboxes.errors import FileTooLarge, OutsideWorkspace, SandboxGone
from transcripts.events import Note
from transcripts.native import NativeLog
from transcripts.records import Outcome
from transcripts.words import End

INSIDE = "/opt/harness"
"""Where the installation is mounted."""

LAST_WORDS_S = 20.0
"""For a harness to end by itself once a cap is reached; then it is killed."""

AFTER_SUBMIT_S = 2.0
"""The same after a hand-in, which what still runs inside must not change."""

DESK_S = 120.0
"""How long a run of `check` or `bench` that nobody waits for any more may take at the end."""

_HANDED_IN = Outcome(end=End.SUBMITTED)
_LOOK_S = 0.25
_SHOWN_CHARACTERS = 400
_PATHS = {"anthropic": "/anthropic", "gemini": "/gemini"}


@dataclass
class _Fate:
    """What was decided about a session while it ran."""

    outcome: Outcome | None = None
    until: float = math.inf  # monotonic: what still runs then is killed
    error: BaseException | None = None  # to be raised again
    lock: threading.Lock = field(default_factory=threading.Lock)

    def decide(self, outcome: Outcome, grace_s: float = LAST_WORDS_S) -> None:
        """The first word counts."""
        with self.lock:
            if self.outcome is None:
                self.outcome, self.until = outcome, time.monotonic() + grace_s


class ExternalRun:
    """Starts the CLI, watches it, and says how it ended."""

    def __init__(
        self, harness: Harness, root: Path, gateway: Gateway, context: SessionContext
    ) -> None:
        self._harness, self._root, self._gateway = harness, root, gateway
        self._context, self._fate = context, _Fate()
        self._log = WireLog(context)

    def outcome(self) -> Outcome:
        """Run to an end. Raises what the session's stop raises, ArchiveError, SandboxError."""
        desk = self._desk()
        admission = self._gateway.admit(self._terms(desk))
        try:
            output = self._run(self._launch(admission), admission)
        finally:
            admission.close()
            desk.close(DESK_S)
        log, stderr = harnesses.log_of(output)
        native = _read(self._harness, log)
        self._note(native, admission)
        if self._fate.error is not None:
            raise self._fate.error
        return self._fate.outcome or self._ended(native, stderr)

    # --- before --------------------------------------------------------------------------------

    def _terms(self, desk: SessionDesk) -> Terms:
        entry = self._context.entry
        return Terms(
            session_id=self._context.transcript.attempt_id,
            entry=entry,
            base_url=provider_url(entry),
            key=entry.read_key(),
            record=self._log.record,
            before_call=self._before_call,
            desk=desk,
            on_tunnel=self._on_tunnel,
            account=account_of(entry.base_url, entry.key),
            whole_answers=self._harness.whole_answers,
        )

    def _desk(self) -> SessionDesk:
        bench, task = self._context.bench, self._context.task
        return SessionDesk(
            self._context.transcript.attempt_id,
            check=bench.check,
            bench=bench.bench,
            digest=bench.digest,
            has_submission=self._has_submission,
            on_report=self._on_report,
            on_submit=lambda: self._fate.decide(_HANDED_IN, AFTER_SUBMIT_S),
            submission_file=task.interface.file,
        )

    def _launch(self, admission: Admission) -> Launch:
        door = self._context.sandbox.doors["gateway"]
        path = _PATHS.get(self._harness.dialect, "/openai/v1")
        # Knobs of a built-in model are no part of a name that a CLI understands.
        model = self._context.entry.model.partition("?")[0]
        route = Route(f"http://{door}{path}", admission.token, model)
        opening = self._context.standing.opening
        return self._harness.launch(self._root, INSIDE, route, opening)

    # --- meanwhile -----------------------------------------------------------------------------

    def _run(self, launch: Launch, admission: Admission) -> bytes:
        """The CLI's output, archived beside the transcript."""
        sandbox, context = self._context.sandbox, self._context
        log = NativeLog(context.folder, context.transcript.secrets)
        env = {**launch.env, **_environment(sandbox, admission.token)}
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,), name="watch-harness")
        watch.start()
        try:
            words = harnesses.script(launch)
            sandbox.exec(words, timeout_s=math.inf, env=env, on_output=log.write)
        except SandboxGone:
            if self._fate.error is None and self._fate.outcome is None:
                raise
        finally:
            over.set()
            watch.join()
            output = log.finish()
        return output

    def _watch(self, over: threading.Event) -> None:
        """End the sandbox when the session is to stop, or is over and its CLI is not."""
        while not over.wait(_LOOK_S):
            try:
                self._context.check_stop()
                if self._log.error is not None:
                    raise self._log.error
            except BaseException as error:  # noqa: BLE001 - raised again by the session's thread
                self._fate.error = error
                self._context.sandbox.close()
                return
            if self._context.seconds_left() <= 0:
                self._fate.decide(Outcome(end=End.LIMIT, reason="seconds"))
                self._context.sandbox.close()
                return
            if time.monotonic() > self._fate.until:
                self._context.sandbox.close()
                return

    def _before_call(self) -> None:
        """See `Terms.before_call`."""
        cap = self._context.cap_reached()
        if cap is not None:
            self._fate.decide(Outcome(end=End.LIMIT, reason=cap))
        elif self._log.repeats:
            self._fate.decide(Outcome(end=End.LIMIT, reason="repetition"))
        decided = self._fate.outcome
        if decided is not None:
            raise Refused("session_over", f"this session is over: {decided.end} {decided.reason}")

    def _on_tunnel(self, tunnelled: Tunnelled) -> None:
        told = tunnelled.refused or f"{tunnelled.sent} bytes out, {tunnelled.received} in"
        where = f"{tunnelled.host}:{tunnelled.port}"
        self._context.transcript.append(Note, topic="network", text=f"{where}: {told}")

    def _has_submission(self) -> bool:
        try:
            return bool(self._context.sandbox.get(self._context.task.interface.file).strip())
        except FileTooLarge:
            return True
        except (OSError, OutsideWorkspace):
            return False

    def _on_report(self, verb: str, report: PublicReport) -> None:
        step = max(0, self._context.standing.step - 1)
        log_report(self._context.transcript, verb, report, step, soon=False)

    # --- afterwards ----------------------------------------------------------------------------

    def _note(self, native: harnesses.NativeLog, admission: Admission) -> None:
        """Findings of the gateway, and where the CLI's log and the wire differ."""
        for found in admission.findings():
            topic = SERVED_MODEL if found.mechanism == "served-model" else found.mechanism
            self._context.transcript.append(Note, topic=topic, text=found.detail)
        if native.finished:
            for line in disagreements(native, self._log.calls):
                self._context.transcript.append(Note, topic="wire_disagreement", text=line)

    def _ended(self, native: harnesses.NativeLog, stderr: str) -> Outcome:
        """How a CLI that ended by itself has ended: by its events, never by its exit code."""
        newest, name = self._log.newest, self._harness.name
        said = (native.error or stderr.strip() or "it said nothing")[-_SHOWN_CHARACTERS:]
        if newest is None:
            message = f"{name} ended and never asked its model: {said}"
            return Outcome(end=End.INFRA_FAULT, reason="harness_failed", message=message)
        if newest.error and newest.error_kind != HUNG_UP:
            if newest.error_kind == ContextOverflow.kind:
                return Outcome(end=End.LIMIT, reason="context", message=newest.error)
            return Outcome(
                end=End.PROVIDER_FAULT,
                reason=newest.error_kind,
                message=f"{name} gave up: {newest.error}"[:_SHOWN_CHARACTERS],
            )
        if native.finished:
            return Outcome(end=End.NO_SUBMISSION, reason="stopped")
        if self._log.waits_for_a_tool:
            # It died in a call of the model's: what the model did, not what we did, ended it.
            message = f"{name} died while a tool was running: {said}"
            return Outcome(end=End.NO_SUBMISSION, reason="harness_died", message=message)
        message = f"{name} did not come to its end: {said}"
        return Outcome(end=End.INFRA_FAULT, reason="harness_failed", message=message)


def _read(harness: Harness, log: str) -> harnesses.NativeLog:
    """What the CLI's log says; one that is not as the harness knows it says nothing."""
    try:
        return harness.read(log)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return harnesses.NativeLog(False, f"its log cannot be read: {error!r}")


def _environment(sandbox: Sandbox, token: str) -> dict[str, str]:
    """How commands find the desk, and the tunnel where there is one."""
    env = {"SESSION_DOOR": sandbox.doors["gateway"], "SESSION_TOKEN": token}
    if "net" in sandbox.doors:
        proxy = f"http://session:{token}@{sandbox.doors['net']}"
        env |= {"HTTPS_PROXY": proxy, "https_proxy": proxy, "NO_PROXY": "127.0.0.1,localhost"}
    return env
