"""Sharing a GPU: seats of sessions, exclusive turns, and the desk that takes them for commands."""
