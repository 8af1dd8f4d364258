"""Paced calls: time that a worker cannot forge, down to microseconds; see docs/gpu-protocol.md."""
