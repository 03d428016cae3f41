"""Control records and orders that change what a hub accepts."""
