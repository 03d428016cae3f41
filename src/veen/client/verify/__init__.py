"""What a client checks of a hub before it believes anything."""
