"""Boards, cards and rounds: pure functions of the archive."""
