"""Read-only SQL over a lake: views, checks of statements, rows as JSON."""
