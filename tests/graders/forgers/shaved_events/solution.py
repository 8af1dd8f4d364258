"""Events that say a little less, in the hope to stay within what is allowed."""
from shared import honest as softmax, scale_events

scale_events(0.97)
