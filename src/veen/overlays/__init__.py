"""Overlays: pure, total, mergeable folds of the log (001 section 11)."""
