"""Writing: batches, commits, flushes, chunks and their retention."""
