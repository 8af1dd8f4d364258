"""Keeps this orchestrator's claims alive while its sessions work."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transcripts.claims import Claim
from transcripts.errors import ArchiveError, ClaimLost

PERIOD_S = 10.0
"""A sixth of a claim's life, so that a few missed beats lose nothing."""


class Heart:
    """One thread that beats for all claims held; a lost claim makes its `Pulse` fail."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._pulses: set[Pulse] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heart":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def keeping(self, claim: Claim) -> Iterator["Pulse"]:
        """Beat for ``claim`` during the block; release it after."""
        pulse = Pulse(claim)
        with self._lock:
            self._pulses.add(pulse)
        try:
            yield pulse
        finally:
            with self._lock:
                self._pulses.discard(pulse)
            pulse.release()

    def _beat(self) -> None:
        while not self._stop.wait(self._period_s):
            with self._lock:
                pulses = list(self._pulses)
            for pulse in pulses:
                pulse.beat()


class Pulse:
    """One claim with what the heartbeat learnt of it."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._lost: ClaimLost | None = None

    def beat(self) -> None:
        """Renew; `check` learns of a loss. A fault of the disk is none: the next beat tells."""
        try:
            self._claim.heartbeat()
        except ClaimLost as error:
            self._lost = error
        except (ArchiveError, OSError):
            return

    def check(self) -> None:
        """Raises ClaimLost once somebody else took the cell."""
        if self._lost is not None:
            raise self._lost

    def release(self) -> None:
        """Give the cell back; what is lost is not ours to give.

        Where the archive cannot be written, the claim ends with this process or its time.
        """
        if self._lost is None:
            with suppress(ArchiveError, OSError):
                self._claim.release()
