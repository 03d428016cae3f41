"""The data directory: the only package that touches it. Acknowledged means on disk."""
