"""Verification of whole logs: the kernel, its tasks and the chain of their results."""
