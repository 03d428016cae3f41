"""The primitives: SHA-256 with tags, Ed25519 and HPKE."""
