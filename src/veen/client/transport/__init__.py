"""How a client reaches a log: HTTP, a data directory or a portable set."""
