"""Evaluate LLM coding agents that write GPU kernels."""

__version__ = "0.1.0"
