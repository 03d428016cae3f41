"""The suites of the self-test, one module each."""
