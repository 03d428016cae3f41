"""The HTTP API of the hub: the table of routes, and a handler for each."""
