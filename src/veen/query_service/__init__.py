"""The query service: accepts, runs and records queries over HTTP."""
