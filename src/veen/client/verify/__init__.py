"""Verification of everything that a hub returns."""
