"""Decryption of entries, and typed columns of their bodies."""
