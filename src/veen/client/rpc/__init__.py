"""RPC over a stream: calls and their server."""
