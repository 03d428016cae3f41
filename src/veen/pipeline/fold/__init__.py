"""Folds of whole logs on Spark."""
