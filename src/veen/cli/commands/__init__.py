"""The commands, one module or folder per word that is typed."""
