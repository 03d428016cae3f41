"""Reader threads and long polls."""
