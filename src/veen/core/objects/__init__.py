"""The objects of the protocol, one module each: its fields, its bytes and its checks."""
