"""What we miss in the standard library; nothing here knows of VEEN. Import its modules, not the package."""
