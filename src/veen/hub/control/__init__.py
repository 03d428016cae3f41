"""Control records and operator requests that change what a hub accepts."""
