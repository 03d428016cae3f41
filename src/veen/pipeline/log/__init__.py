"""A log in partitions: a data directory, a portable set or a hub."""
