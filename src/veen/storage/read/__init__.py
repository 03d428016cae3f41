"""Reading: entries, ranges, proofs and partitions of a log."""
