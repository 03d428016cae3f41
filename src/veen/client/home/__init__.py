"""The client directory: state, pins and their files."""
