"""Spark itself: its session, its processes, and what they need from the machine."""
