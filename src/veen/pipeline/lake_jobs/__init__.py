"""Jobs that write, check and rebuild a lake."""
