"""Transports to a log: HTTP, a data directory or a portable set."""
