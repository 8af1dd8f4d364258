"""Sessions of our own loop: the scripted server, a real sandbox, a real transcript, no referee."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from graders.base import PublicReport
from model_servers import QUICK
from orchestrator.agents.base import SessionContext, Standing
from orchestrator.agents.loop import LoopAgent
from orchestrator.models.base import Conversation, UserTurn
from orchestrator.models.connect import client
from orchestrator.models.entry import ModelEntry
from orchestrator.models.roster import load_roster
from orchestrator.resume import standing
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain
from tasks.loader import load_task
from transcripts import chain
from transcripts.events import Event, Prompt
from transcripts.records import Budget, Outcome
from transcripts.writer import TranscriptWriter

TASK = load_task("layernorm-backward")
_ID = "session"


class NoReferee:
    """`check` and `bench` of a session that nobody grades: real reports, no worker."""

    def check(self) -> PublicReport:
        return PublicReport(True, "pass", "right")

    def bench(self) -> PublicReport:
        return PublicReport(True, "pass", "1 ms", {"a": 1.0})


@dataclass
class LoopSession:
    """One session in a folder; running it again resumes it from its transcript."""

    folder: Path
    url: str
    model: str
    protocol: str = "openai"
    window: int | None = None
    budget: Budget = field(default_factory=Budget)
    on_progress: Callable[[Standing, TranscriptWriter], None] = lambda _at, _writer: None

    def run(self) -> Outcome:
        """Run, or go on, to an end."""
        self.folder.mkdir(exist_ok=True)
        spec = SandboxSpec(_ID, "test", self.folder / "state", host_toolchain().mounts)
        (self.folder / "state").mkdir(exist_ok=True)
        sandbox = provider("process").start(spec)
        at, _ = standing(self.events())
        try:
            with TranscriptWriter(self.folder, _ID, durable=False) as writer:
                if not at.conversation.turns:
                    at = self._begin(writer)
                return LoopAgent().run(
                    SessionContext(
                        task=TASK,
                        sandbox=sandbox,
                        entry=self.entry(),
                        connect=lambda: client(
                            self.entry(), base_url_override=self.url, policy=QUICK
                        ),
                        transcript=writer,
                        folder=self.folder,
                        bench=NoReferee(),
                        standing=at,
                        budget=self.budget,
                        check_stop=lambda: None,
                        on_progress=lambda now: self.on_progress(now, writer),
                    )
                )
        finally:
            sandbox.close()

    def entry(self) -> ModelEntry:
        """The model as the roster would have it."""
        changes = {
            "protocol": self.protocol,
            "context_tokens": self.window,
            "max_output_tokens": 500,
        }
        return load_roster().resolve(self.model).model_copy(update=changes)

    def events(self) -> list[Event]:
        """What is on the disk."""
        return [chain.load(chain.split(line)[0]) for line in self.lines()]

    def lines(self) -> Iterator[bytes]:
        """The transcript's lines without their newlines."""
        path = self.folder / "transcript.jsonl"
        yield from path.read_bytes().splitlines() if path.exists() else ()

    def cut(self, events: int) -> None:
        """Leave the first ``events`` of the transcript, as a kill would have."""
        kept = list(self.lines())[:events]
        (self.folder / "transcript.jsonl").write_bytes(b"".join(line + b"\n" for line in kept))

    def of(self, kind: type[Event]) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events() if isinstance(event, kind)]

    @staticmethod
    def _begin(writer: TranscriptWriter) -> Standing:
        at = Standing(Conversation("You are an agent."), opening=TASK.prompt)
        writer.append(Prompt, role="system", text=at.conversation.system)
        writer.append(Prompt, role="user", text=TASK.prompt)
        at.conversation.turns.append(UserTurn(TASK.prompt))
        return at
