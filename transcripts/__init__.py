"""Transcripts and the archive: the product's memory."""
