"""The journal: what was acknowledged and is not yet in chunks, and its replay."""
