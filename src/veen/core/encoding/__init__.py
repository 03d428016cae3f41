"""Bytes and JSON: one canonical form of each, and the declared shape of every wire object."""
