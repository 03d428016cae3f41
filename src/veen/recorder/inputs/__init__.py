"""Where recorded events come from: programs, files and OTLP."""
