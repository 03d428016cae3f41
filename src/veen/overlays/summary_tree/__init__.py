"""The summary tree: the state of a stream at any position, from few rows."""
