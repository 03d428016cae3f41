"""The threads that read for clients, and long polls."""
