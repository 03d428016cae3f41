"""Listening sockets, HTTP connections and their bounds; knows nothing of hubs."""
