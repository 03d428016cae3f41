"""Programs for developers of VEEN, which are not installed with it."""
