"""Pipelines on Spark: the only package that imports pyspark, and it does so late."""
