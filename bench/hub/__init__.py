"""What a hub does in a second, beside the bare primitives and other servers on the same machine."""
