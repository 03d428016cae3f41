"""VEEN: an ephemeral, verifiable, end-to-end encrypted event fabric."""

__version__ = "0.1.0"
