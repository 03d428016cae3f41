"""RPC over a stream: client and server."""
