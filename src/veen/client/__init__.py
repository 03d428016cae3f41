"""The client: keys, sending, reading and checking (docs/adr/0009-the-client.md)."""
