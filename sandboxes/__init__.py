"""Sandboxes: where agents and submissions run, isolated from everything that is not theirs."""
