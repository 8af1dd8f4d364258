"""Models: clients, roster, retry, and the built-in scripted models."""
