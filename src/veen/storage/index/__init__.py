"""The index: rows of LMDB that are derived from the log."""
