"""The data directory as bytes: paths, records and files, without opening any."""
