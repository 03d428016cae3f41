"""The journal: entries that are acknowledged and not flushed into chunks yet, and its replay."""
