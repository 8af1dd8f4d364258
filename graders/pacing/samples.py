"""From paced chains and claimed events to the figure of a shape.

The *certified* time of a call is the least mean of the chains, whole: from *go* to the digest of
its outputs. A worker's own CUDA events are a claim. What an honest worker's events would say is
*predicted*: the certified time less what a paced call of our own worker, about as long and with
outputs of the same size, takes beyond its own events, in the same run. A claim stands when it is
not below the prediction by more than ``SLACK`` (or ``SLACK_MS``); otherwise the certified time is
the figure.

Chains, not calls, are the unit: what a worker prepares in one call for others is in the mean of its
chain. The least, not the median of chains, because a machine's noise only ever adds, and a
prediction that noise has raised would accuse the honest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from graders.pacing.chain import Chain
from graders.timing import median_interval
from transcripts.records import EventsClaim, ShapeTiming

METHOD = "paced_calls"
SLACK, SLACK_MS = 0.03, 0.001


@dataclass(frozen=True)
class Trusted:
    """Our own worker's paced calls and events."""

    chains: tuple[Chain, ...]
    events_ms: tuple[float, ...]

    @property
    def beside_ms(self) -> float:
        """What a paced call takes beyond what events say."""
        return least_ms(self.chains) - statistics.median(self.events_ms)


@dataclass
class PacedSamples:
    """Everything that was measured of one shape."""

    shape: str
    chains: list[Chain] = field(default_factory=list)
    trusted: list[Trusted] = field(default_factory=list)
    events_ms: list[float] = field(default_factory=list)
    queued_ms: list[float] = field(default_factory=list)
    verified: int = 0  # calls whose outputs were handed over and compared
    contention: float = 0.0  # of a worker's core: nothing that these figures rest on
    seconds: float = 0.0

    @property
    def certified_ms(self) -> float:
        """Least chain mean."""
        return least_ms(self.chains)

    @property
    def beside_ms(self) -> float:
        """The most that our own worker's calls take beyond events, however they spend their time.

        A call that keeps the device busy hides the launch of its digest behind its own work; one
        that keeps the host busy does not. Which of them a submission is, only it knows.
        """
        return max(trusted.beside_ms for trusted in self.trusted)

    @property
    def predicted_ms(self) -> float:
        """What an honest worker's events would say at least."""
        return max(self.certified_ms - self.beside_ms, 0.0)

    @property
    def deferred(self) -> float:
        """Mean over median of a chain's calls, the least of the chains: 1 when all are alike."""
        return min(
            statistics.fmean(chain.elapsed_ns) / statistics.median(chain.elapsed_ns)
            for chain in self.chains
        )

    @property
    def claim(self) -> EventsClaim | None:
        """The worker's events, and whether the certified time bears them; None without any."""
        if not self.events_ms:
            return None
        claimed, predicted = statistics.median(self.events_ms), self.predicted_ms
        low, high = median_interval(self.events_ms)
        accepted = claimed >= predicted - max(SLACK * predicted, SLACK_MS)
        told = f"events say {claimed:.4f} ms; the referee's clock predicts {predicted:.4f} ms"
        return EventsClaim(
            calls=len(self.events_ms),
            median_ms=claimed,
            ci_low_ms=low,
            ci_high_ms=high,
            device_ms=statistics.median(self.queued_ms) if self.queued_ms else None,
            predicted_ms=predicted,
            accepted=accepted,
            why="" if accepted else told,
        )

    def summary(self) -> ShapeTiming:
        """The record: the events where they stand, else the certified time."""
        claim = self.claim
        if claim is None or not claim.accepted:
            return self._certified(claim)
        return ShapeTiming(
            shape=self.shape,
            method="cuda_events",
            certified=False,
            calls=claim.calls,
            median_ms=claim.median_ms,
            ci_low_ms=claim.ci_low_ms,
            ci_high_ms=claim.ci_high_ms,
            min_ms=min(self.events_ms),
            overhead_ms=max(self.beside_ms, 0.0),
            certified_ms=self.certified_ms,
            claim=claim,
        )

    def _certified(self, claim: EventsClaim | None) -> ShapeTiming:
        means = [chain.mean_ns / 1e6 for chain in self.chains]
        return ShapeTiming(
            shape=self.shape,
            method=METHOD,
            certified=True,
            calls=sum(len(chain.elapsed_ns) for chain in self.chains),
            median_ms=self.certified_ms,
            ci_low_ms=min(means),
            ci_high_ms=max(means),
            min_ms=min(min(chain.elapsed_ns) for chain in self.chains) / 1e6,
            overhead_ms=max(self.beside_ms, 0.0),
            certified_ms=self.certified_ms,
            claim=claim,
        )


def least_ms(chains: Sequence[Chain]) -> float:
    """The least mean of the chains."""
    return min(chain.mean_ns for chain in chains) / 1e6
