"""Checks that an installation works as documented, by its public interfaces alone.

Steps use the client library, HTTP, files and the program itself; nothing of the hub is imported. A suite is a
list of steps. A run ends every process that it starts, and removes every file that it writes.
"""

from veen.selftest.runner import SUITES, Outcome, Report, Setup, run, step_names

__all__ = ["SUITES", "Outcome", "Report", "Setup", "run", "step_names"]
