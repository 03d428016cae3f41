"""The HTTP API of the hub: the route table and its handlers."""
