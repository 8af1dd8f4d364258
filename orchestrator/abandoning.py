"""Sessions that nobody can go on with: sealed as they stand, so that nothing of them is lost.

Sessions of our own loop go on at their last finished step, whoever takes them up. A foreign
harness holds its conversation in its own process, which is gone.
"""

from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.plan import PlannedCell
from orchestrator.resume import standing
from orchestrator.session import SessionParts
from orchestrator.submission import handed_in, staged_files, without_secrets
from sandboxes.base import WORKSPACE
from sandboxes.errors import SandboxError
from sandboxes.jail import spare_uid
from sandboxes.volume import volume_in
from sandboxes.workspace import Workspace
from transcripts.errors import ArchiveError
from transcripts.events import SessionEnd
from transcripts.native import pack
from transcripts.records import Outcome
from transcripts.store import AttemptFolder
from transcripts.words import End

LOST = Outcome(
    end=End.INTERRUPTED,
    reason="not_resumable",
    message="its orchestrator ended, and its harness with it; a new attempt starts from the task",
)


def is_left_over(parts: SessionParts, folder: AttemptFolder) -> bool:
    """Whether a dealt attempt was begun by somebody, and cannot be gone on with."""
    return not parts.agent.resumable and next(folder.events(), None) is not None


def let_go(parts: SessionParts, cell: PlannedCell, folder: AttemptFolder, outcome: Outcome) -> None:
    """Abandon what infrastructure ended and nobody can go on with; all else is left as it is.

    Where the archive cannot be written or the workspace not read, the next sweep does it.
    """
    is_ours = outcome.reason not in ("claim_lost", "claim_held", "already_sealed")
    if is_ours and not parts.agent.resumable and not folder.is_sealed:
        with suppress(ArchiveError, SandboxError):
            abandon(parts, cell, folder, outcome)


def abandon(
    parts: SessionParts, cell: PlannedCell, folder: AttemptFolder, outcome: Outcome
) -> None:
    """Seal a live attempt with its events, its workspace and what it has cost.

    Raises ArchiveError, and SandboxError for a workspace that cannot be read here; then the attempt
    lives on, and the next sweep abandons it.
    """
    with folder.open_writer(parts.owner, parts.secrets) as writer:
        at, _ = standing(folder.events())
        pack(folder.path, writer.secrets)
        writer.append(SessionEnd, outcome=outcome)
    volume = volume_in(folder.workspace, parts.limits.disk_bytes)
    workspace = Workspace(volume, WORKSPACE, spare_uid(folder.id), parts.limits)
    found = handed_in(workspace.snapshot(), staged_files(cell.task, folder.id))
    changed = without_secrets(found, writer.secrets)
    record = folder.record.model_copy(
        update={
            "ended_at": datetime.now(UTC),
            "outcome": outcome,
            "usage": at.usage,
            "cost_usd": at.cost_usd,
            "steps": at.step,
        }
    )
    files = [(file.path, file.data, file.executable) for file in changed.values()]
    folder.seal(record, {}, files)
