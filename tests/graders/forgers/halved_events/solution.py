"""Events that say half: the referee's clock does not bear it."""
from shared import honest as softmax, scale_events

scale_events(0.5)
