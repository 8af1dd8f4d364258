"""Deck files (TOML): locked lists of tasks."""
