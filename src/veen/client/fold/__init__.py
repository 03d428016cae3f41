"""Folds of a stream by the client: interpretation, increments and snapshots."""
