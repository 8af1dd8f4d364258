"""Questions to one worker and its answers, each within a deadline and within the worker's memory.

Raises ``SubmissionFailed`` for what a submission does (``graders.failures`` has the words).
"""

import reprlib
import time
from typing import Any

from graders import failures
from graders.channel import Channel
from graders.errors import GraderVoid, SubmissionFailed
from graders.holding import Holding
from graders.running import Running
from graders.worker.wire import WireBroken
from transcripts.words import GradeResult

SENDING_S = 10.0  # a worker reads what it is asked at once, but may have been stopped


class Conversation:
    """With a worker that is ready. ``deadline`` (monotonic) bounds all of it."""

    def __init__(
        self,
        channel: Channel,
        running: Running,
        holding: Holding,
        most_bytes: int,
        deadline: float | None,
    ) -> None:
        self._channel, self._running, self._holding = channel, running, holding
        self._most_bytes, self._deadline = most_bytes, deadline
        self.lent_bytes = (
            0  # of the referee's memory, which counts as the worker's where it maps it
        )
        self.usable = True  # False once answers can no longer be matched to questions

    def ask(self, frame: dict[str, Any], s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send a frame and wait for its answer. Raises SubmissionFailed."""
        self.begin(frame, fds, s)
        return self.finish(frame, s)

    def begin(self, frame: dict[str, Any], fds: tuple[int, ...] = (), s: float = SENDING_S) -> None:
        """Send a frame to a worker that is let run. Raises SubmissionFailed, GraderVoid."""
        if not self._holding.is_on:
            self.check_memory()
        self._holding.let_go()
        try:
            self._channel.ask(frame, fds, self._until(s))
        except WireBroken as error:
            if error.how == "oversize":  # our own frame
                raise GraderVoid(f"the question `{frame['op']}` is too large: {error}") from error
            raise self._broken(error) from error

    def finish(self, frame: dict[str, Any], s: float) -> dict[str, Any]:
        """Wait for the answer to a frame. Raises SubmissionFailed."""
        try:
            answer = self._channel.answer(self._until(s), self.check_memory)
        except WireBroken as error:
            raise self._broken(error) from error
        if "error" in answer:
            self.usable = self.usable and not failures.is_sticky(answer)
            raise self._running.raised(answer)
        if answer.get("ok") != frame["op"] or answer.get("n") != frame.get("n"):
            raise self.lost(f"a forged answer to `{frame['op']}`: {reprlib.repr(answer)}")
        return answer

    def has_answered(self) -> bool:
        """True when something has come that `finish` would read."""
        return self._channel.has_answer()

    def refuse_unasked(self) -> None:
        """A frame that nobody asked for was written by the submission. Raises SubmissionFailed."""
        if self.has_answered():
            try:
                frame = self._channel.answer(time.monotonic() + 1)
            except WireBroken as error:
                raise self._broken(error) from error
            raise self.lost(f"an unasked frame: {reprlib.repr(frame)}")

    def check_memory(self) -> None:
        """Raises SubmissionFailed, ``memory``: no rlimit counts memfds, or processes together."""
        most = self._most_bytes + self.lent_bytes
        if (held := self._running.held_bytes()) > most:
            told = f"it holds {held >> 20} MiB of memory; {most >> 20} MiB are allowed"
            raise self.lost(told, GradeResult.MEMORY)

    def lost(self, how: str, word: GradeResult = GradeResult.TAMPERED) -> SubmissionFailed:
        """A failure after which its answers can no longer be matched to questions."""
        self.usable = False
        return SubmissionFailed(word, how)

    def _until(self, s: float) -> float:
        """The moment ``s`` seconds from now, or the end of the whole grade."""
        moment = time.monotonic() + s
        return moment if self._deadline is None else min(moment, self._deadline)

    def _broken(self, error: WireBroken) -> SubmissionFailed:
        if error.how != "closed":
            return self.lost(str(error), failures.BROKEN[error.how])
        self.usable = False
        return self._running.ended()
