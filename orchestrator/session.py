"""One session: a sandbox, an agent, a transcript, and at the end a sealed attempt.

Ends that say something about the model are sealed. Infrastructure ends leave the session as it is,
to be resumed at its last finished step by the next sweep.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from graders.base import Grader, GradeRequest, PublicReport
from graders.surroundings import of_device, packages_of, toolchain_of
from orchestrator.agents.base import Agent, SessionContext, Standing
from orchestrator.faults import StopRequested, outcome_of
from orchestrator.heartbeat import Pulse
from orchestrator.machine_words import about_machine
from orchestrator.models.base import Conversation, ModelClient, UserTurn
from orchestrator.models.entry import ModelEntry
from orchestrator.models.errors import ModelError
from orchestrator.plan import PlannedCell
from orchestrator.resume import INTERRUPTED, standing
from orchestrator.sessionbench import BenchTurn, SessionBench
from orchestrator.sharing import Devices
from orchestrator.submission import digests, handed_in, staged_files, without_secrets
from orchestrator.turns.seats import Seats
from orchestrator.turns.turns import Turns
from sandboxes.base import Limits, Sandbox, SandboxProvider, SandboxSpec
from transcripts.errors import ArchiveError, ClaimLost
from transcripts.events import (
    Fault,
    Prompt,
    SessionEnd,
    SessionStart,
    Submission,
    ToolCallStarted,
    ToolResult,
)
from transcripts.records import Attempt, Budget, Outcome
from transcripts.store import AttemptFolder
from transcripts.words import End
from transcripts.writer import TranscriptWriter


@dataclass(frozen=True)
class SessionParts:
    """What the sessions of one sweep share."""

    agent: Agent
    provider: SandboxProvider
    grader: Grader
    isolation: str  # of the grader's workers
    owner: str
    connect: Callable[[ModelEntry], ModelClient]
    secrets: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    stop: threading.Event = field(default_factory=threading.Event)
    turns: Turns = field(default_factory=lambda: Turns(lambda _: None))
    devices: Devices = field(default_factory=Devices)
    seats: Seats | None = None  # on the GPUs of `devices`
    limits: Limits = field(default_factory=Limits)
    image: str = ""  # the id of a docker image with tools of its own


class Session:
    """Runs one attempt, fresh or resumed, to an outcome."""

    def __init__(
        self,
        parts: SessionParts,
        cell: PlannedCell,
        folder: AttemptFolder,
        pulse: Pulse,
        on_progress: Callable[[Standing], None],
        on_bench: Callable[[PublicReport], None] = lambda _: None,
    ) -> None:
        self._parts = parts
        self._cell = cell
        self._folder = folder
        self._pulse = pulse
        self._on_progress = on_progress
        self._on_bench = on_bench
        self._staged = staged_files(cell.task, folder.id)

    def run(self) -> Outcome:
        """Run to an end. Raises only defects of ours; everything else is the outcome."""
        try:
            with self._folder.open_writer(self._parts.owner, self._parts.secrets) as writer:
                try:
                    hand_in = self._run(writer)
                except Exception as error:
                    self._log_fault(writer, error)
                    raise
            self._pulse.beat()
            self._pulse.check()
            self._folder.seal(hand_in.record, hand_in.files, hand_in.workspace)
        except Exception as error:
            outcome = outcome_of(error)
            if outcome is None:
                raise
            return outcome
        return hand_in.outcome

    def _run(self, writer: TranscriptWriter) -> "_HandIn":
        events = list(self._folder.events())
        self._start_event(writer, resumed=bool(events))
        self._note_sandbox()
        at, open_call = standing(events)
        if open_call is not None:
            _answer_interrupted(writer, at, open_call)
        with self._seat() as device:
            if not at.conversation.turns:
                self._prompt(writer, at, device)
            with self._sandbox(device) as sandbox:
                return self._session(writer, sandbox, at, device)

    def _session(
        self, writer: TranscriptWriter, sandbox: Sandbox, at: Standing, device: str
    ) -> "_HandIn":
        if at.step == 0:
            self._stage(sandbox)
        try:
            outcome = self._drive(writer, sandbox, at, device)
        except ModelError as error:
            known = outcome_of(error)
            if known is None or known.end.retryable:
                raise
            outcome = known  # a limit of the model's own: the session ends here
        return self._finish(writer, sandbox, at, outcome)

    @contextmanager
    def _seat(self) -> Iterator[str]:
        """The device that the session works on: a GPU where its task needs one, else the CPU."""
        seats = self._parts.seats
        if seats is None or self._cell.task.name not in self._parts.devices.on_gpu:
            yield "cpu"
            return
        with seats.seat(self._check_stop) as uuid:
            yield uuid

    @contextmanager
    def _sandbox(self, device: str) -> Iterator[Sandbox]:
        """A started sandbox; one on a GPU stands still while another session has its turn."""
        sandbox = self._parts.provider.start(self._sandbox_spec(device))
        try:
            with ExitStack() as stack:
                if device != "cpu":
                    stack.enter_context(self._parts.turns.sharing(device, sandbox))
                yield sandbox
        finally:
            sandbox.close()

    def _start_event(self, writer: TranscriptWriter, *, resumed: bool) -> None:
        writer.append(
            SessionStart,
            attempt_id=self._folder.id,
            resumed=resumed,
            owner=self._parts.owner,
            notes=(writer.repaired,) if writer.repaired else (),
        )

    def _note_sandbox(self) -> None:
        """Where a session went on in another kind of sandbox, its record names the weaker one."""
        record, kind = self._folder.record, self._parts.provider.kind
        before = record.fingerprint
        if before is None or before.sandbox in (kind, "process"):
            return
        fingerprint = before.model_copy(update={"sandbox": kind})
        self._folder.save(record.model_copy(update={"fingerprint": fingerprint}))

    def _prompt(self, writer: TranscriptWriter, at: Standing, device: str) -> None:
        """Say the first words, or those that a crash left unsaid."""
        agent = self._parts.agent
        if agent.system_prompt and not at.conversation.system:
            at.conversation = Conversation(agent.system_prompt)
            writer.append(Prompt, role="system", text=at.conversation.system)
        request = f"{self._cell.task.prompt}\n{about_machine(self._cell.task, device)}\n"
        at.opening = agent.opening(request)
        writer.append(Prompt, role="user", text=at.opening)
        at.conversation.turns.append(UserTurn(at.opening))

    def _sandbox_spec(self, device: str) -> SandboxSpec:
        toolchain = toolchain_of(packages_of(self._cell.task, device))
        spec = SandboxSpec(
            session_id=self._folder.id,
            owner=self._parts.owner,
            state_dir=self._folder.workspace,
            mounts=toolchain.mounts,
            env={**toolchain.env, **of_device(toolchain, device)},
            limits=self._parts.limits,
            image=self._parts.image,
            gpus=() if device == "cpu" else (device,),
        )
        return self._parts.agent.fitted(spec)

    def _stage(self, sandbox: Sandbox) -> None:
        """Put the public files; before the first answer, so that the agent owns them afterwards."""
        for path, data in self._staged.items():
            sandbox.put(path, data)

    def _drive(
        self, writer: TranscriptWriter, sandbox: Sandbox, at: Standing, device: str
    ) -> Outcome:
        context = SessionContext(
            task=self._cell.task,
            sandbox=sandbox,
            entry=self._cell.model,
            connect=lambda: self._parts.connect(self._cell.model),
            transcript=writer,
            folder=self._folder.path,
            bench=SessionBench(
                self._parts.grader,
                GradeRequest(
                    self._cell.task, Path(), isolation=self._parts.isolation, device=device
                ),
                sandbox,
                self._staged,
                BenchTurn(self._parts.turns, self._folder.id, self._check_stop),
                self._on_bench,
            ),
            standing=at,
            budget=self._parts.budget,
            check_stop=self._check_stop,
            on_progress=self._on_progress,
        )
        return self._parts.agent.run(context)

    def _check_stop(self) -> None:
        self._pulse.check()
        if self._parts.stop.is_set():
            raise StopRequested("the orchestrator was asked to stop; run the sweep again to go on")

    def _finish(
        self, writer: TranscriptWriter, sandbox: Sandbox, at: Standing, outcome: Outcome
    ) -> "_HandIn":
        """Log the hand-in and the end."""
        self._on_progress(at)
        snapshot = sandbox.snapshot()
        changed = without_secrets(handed_in(snapshot, self._staged), writer.secrets)
        files = {path: file.data for path, file in changed.items()}
        explicit = outcome.end is End.SUBMITTED
        if outcome.end is End.NO_SUBMISSION and files.get(self._cell.task.interface.file):
            outcome = Outcome(end=End.SUBMITTED, reason="last_state")
        if outcome.end is End.NO_SUBMISSION:
            files = {}
        if files:
            writer.append(
                Submission, explicit=explicit, files=digests(files), left_out=snapshot.left_out
            )
        writer.append(SessionEnd, outcome=outcome)
        record = self._folder.record.model_copy(
            update={
                "ended_at": datetime.now(UTC),
                "outcome": outcome,
                "usage": at.usage,
                "cost_usd": at.cost_usd,
                "steps": at.step,
            }
        )
        workspace = [(file.path, file.data, file.executable) for file in changed.values()]
        return _HandIn(outcome, record, files, workspace)

    def _log_fault(self, writer: TranscriptWriter, error: Exception) -> None:
        """Keep why it stopped, where the archive can still be written."""
        outcome = outcome_of(error)
        if outcome is None or isinstance(error, ClaimLost):
            return  # a defect says it by its traceback; a lost cell is no longer ours to write
        try:
            writer.append(Fault, fault=outcome.reason, message=outcome.message)
            self._folder.save(self._folder.record.model_copy(update={"outcome": outcome}))
        except ArchiveError:
            return  # the outcome itself reaches the caller; the archive is what failed


@dataclass(frozen=True)
class _HandIn:
    """What a session leaves to be sealed."""

    outcome: Outcome
    record: Attempt
    files: Mapping[str, bytes]
    workspace: list[tuple[str, bytes, bool]]


def _answer_interrupted(writer: TranscriptWriter, at: Standing, open_call: ToolCallStarted) -> None:
    """Tell the model that a started call has no known result."""
    call = open_call.call
    result = writer.append(
        ToolResult,
        step=open_call.step,
        call_id=call.id,
        name=call.name,
        status="interrupted",
        text=INTERRUPTED,
    )
    at.finished(result)
