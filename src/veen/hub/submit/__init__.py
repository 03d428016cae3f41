"""The path of a message: submission, verification and sequencing."""
