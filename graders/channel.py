"""The referee's ends of the wire to one worker: it asks on a socket, and reads a pipe."""

import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graders.worker.wire import receive_answer, send_question


class Channel:
    """Both ends of ours. Raises WireBroken for what the other side does."""

    def __init__(self) -> None:
        self._questions, self._its_questions = socket.socketpair()
        self._questions.shutdown(socket.SHUT_RD)  # a write of the worker's is refused at once
        self._answers, self._its_answers = os.pipe()
        os.set_blocking(self._answers, False)

    @contextmanager
    def of_the_worker(self) -> Iterator[tuple[int, int]]:
        """The ends to start a worker with, questions and answers; ours no longer afterwards."""
        try:
            yield self._its_questions.fileno(), self._its_answers
        finally:
            self._its_questions.close()
            os.close(self._its_answers)

    def ask(self, frame: dict[str, Any], fds: tuple[int, ...], deadline: float) -> None:
        """Send a question."""
        send_question(self._questions, frame, fds, deadline)

    def answer(
        self, deadline: float, meanwhile: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Wait for a frame; ``meanwhile`` is called every ``LOOK_S``, and may raise."""
        return receive_answer(self._answers, deadline, meanwhile)

    def has_answer(self) -> bool:
        """True when something waits to be read, or the worker has closed its end."""
        waiting = select.poll()  # `select` refuses descriptors beyond 1024
        waiting.register(self._answers, select.POLLIN)
        return bool(waiting.poll(0))

    def close(self) -> None:
        """Close our ends. Idempotent."""
        self._questions.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
