"""Engines: how many cells run at once, and where."""
