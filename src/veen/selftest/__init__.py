"""Selftests: suites that use public interfaces only."""
