"""Throughput of a hub, compared with the bare primitives and other servers on the same machine."""
