"""Checks that an installation does what it promises, by its public interfaces alone.

The client library, HTTP, files and the program itself are used; nothing of the hub is imported. Every suite
is a list of steps, and whatever a run starts or writes is gone afterwards.
"""

from veen.selftest.runner import SUITES, Outcome, Report, Setup, run, step_names

__all__ = ["SUITES", "Outcome", "Report", "Setup", "run", "step_names"]
