"""Events that say half: the referee's clock does not bear it."""
from shared import scale_events

scale_events(0.5)
