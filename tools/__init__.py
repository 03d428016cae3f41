"""Programs for developers of VEEN; none of them is installed."""
