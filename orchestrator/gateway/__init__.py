"""The way from a sandbox to a model: one HTTP server a sweep, on a Unix socket, keys outside."""
