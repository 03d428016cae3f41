"""Repair, rebuilding and copies of a data directory."""
