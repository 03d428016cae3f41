"""Overlays over control records; today label classes."""
