"""From paced chains and claimed events to the figure of a shape.

The *certified* time of a call is the least mean of the chains, whole: from *go* to the digest of
its outputs. A worker's own CUDA events are a claim. What an honest worker's events would say is
*predicted*: the certified time less what a paced call of our own worker, about as long and with
outputs of the same size, takes beyond its own events, in the same run.

- A claim above the prediction is the figure: nobody lies to his own cost.
- One a little below it (``NEAR``, or ``NEAR_MS``) counts as the prediction, so that shaving gains
  nothing; both say the same within what a machine's noise does to either.
- One far below it is refused: the whole certified time is the figure, and a finding is raised.

Chains, not calls, are the unit: what a worker prepares in one call for others is in the mean of its
chain. So is what it may have prepared between calls: the time for which the referee waited longer
than ``WAITS`` times as long as for our own worker, and ``WAIT_NS`` more. The least, not the median
of chains, because a machine's noise only ever adds, and a prediction that noise has raised would
accuse the honest.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from graders.pacing.chain import Chain
from graders.timing import median_interval
from transcripts.records import EventsClaim, ShapeTiming

NEAR, NEAR_MS = 0.10, 0.003
WAITS, WAIT_NS = 2.0, 20_000


@dataclass(frozen=True)
class Trusted:
    """Our own worker's paced calls, and its events in as many batches, in milliseconds."""

    chains: tuple[Chain, ...]
    events_ms: tuple[tuple[float, ...], ...]

    @property
    def beside_ms(self) -> float:
        """What a paced call takes beyond what events say: the least of each, noise only adds."""
        return least_ms(self.chains) - min(map(statistics.median, self.events_ms))

    def beyond_ns(self, chain: Chain) -> float:
        """How much longer the referee waited between the calls of a chain than for ours."""
        here = statistics.median(own.here_ns for own in self.chains)
        keep = statistics.median([ns for own in self.chains for ns in own.keeps_ns] or [0])
        waits = [(chain.here_ns, here), *((ns, keep) for ns in chain.keeps_ns)]
        return sum(max(waited - WAITS * own - WAIT_NS, 0.0) for waited, own in waits)


@dataclass
class PacedSamples:
    """Everything that was measured of one shape."""

    shape: str
    chains: list[Chain] = field(default_factory=list)
    trusted: list[Trusted] = field(default_factory=list)
    events_ms: list[float] = field(default_factory=list)
    queued_ms: list[float] = field(default_factory=list)
    verified: int = 0  # calls whose outputs were handed over and compared
    contention: None = None  # of a worker's core: not measured, these figures do not rest on it
    seconds: float = 0.0

    @property
    def certified_ms(self) -> float:
        """Least chain mean."""
        return min(self._means_ms)

    @property
    def _means_ms(self) -> list[float]:
        """Of each chain, with what is charged for waits once our own worker's are known."""
        charged = [
            min((own.beyond_ns(chain) for own in self.trusted), default=0.0)
            for chain in self.chains
        ]
        return [
            (chain.mean_ns + more / len(chain.elapsed_ns)) / 1e6
            for chain, more in zip(self.chains, charged, strict=True)
        ]

    @property
    def beside_ms(self) -> float:
        """The least that our own worker's calls take beyond events, however they spend their time.

        A call that keeps the device busy hides the launch of its digest behind its own work; one
        that keeps the host busy does not. Only the submission knows which it is, so the figure
        that leaves it less counts.
        """
        return min(trusted.beside_ms for trusted in self.trusted)

    @property
    def predicted_ms(self) -> float:
        """What an honest worker's events would say."""
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
        accepted = claimed > 0 and claimed >= predicted - max(NEAR * predicted, NEAR_MS)
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
        """The record, with the figure of the rule above."""
        claim = self.claim
        if claim is not None and claim.accepted and claim.median_ms >= claim.predicted_ms:
            interval = claim.median_ms, claim.ci_low_ms, claim.ci_high_ms
            return self._record("cuda_events", interval, min(self.events_ms), claim.calls)
        means = self._means_ms
        calls = [ns / 1e6 for chain in self.chains for ns in chain.elapsed_ns]
        less = self.beside_ms if claim is not None and claim.accepted else 0.0
        interval = min(means) - less, min(means) - less, max(means) - less
        method = "paced_estimate" if less else "paced_calls"
        return self._record(method, interval, max(min(calls) - less, 0.0), len(calls))

    def _record(
        self, method: str, interval: tuple[float, float, float], least: float, calls: int
    ) -> ShapeTiming:
        return ShapeTiming(
            shape=self.shape,
            method=method,
            certified=method != "cuda_events",
            calls=calls,
            median_ms=interval[0],
            ci_low_ms=interval[1],
            ci_high_ms=interval[2],
            min_ms=least,
            overhead_ms=max(self.beside_ms, 0.0),
            certified_ms=self.certified_ms,
            claim=self.claim,
        )


def least_ms(chains: Sequence[Chain]) -> float:
    """The least mean of the chains."""
    return min(chain.mean_ns for chain in chains) / 1e6
