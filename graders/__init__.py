"""Graders: the referee, its worker, and what is computed from their measurements."""
