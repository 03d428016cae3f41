"""Queries executed on Spark over the tables of a lake."""
