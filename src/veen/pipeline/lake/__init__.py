"""A lake: the tables of a log, in Parquet, and the commits that say which files they are."""
