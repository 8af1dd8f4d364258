"""Dialects: foreign session logs, read into our events."""
