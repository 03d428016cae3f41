"""Checks of a recorded stream against its checkpoints."""
