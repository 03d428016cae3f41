"""Programs for those who work on VEEN; none of them is installed."""
