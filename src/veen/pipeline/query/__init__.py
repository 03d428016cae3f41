"""Execution of queries over the tables of a lake: on Spark, or in this process if they touch little."""
