"""Sources of recorded events: programs, files and OTLP."""
