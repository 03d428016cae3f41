"""A lake: the tables of a log in Parquet, and the commits that list their files."""
