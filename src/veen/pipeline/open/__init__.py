"""Decryption of entries into typed columns."""
