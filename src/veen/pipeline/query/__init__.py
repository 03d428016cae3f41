"""Queries executed over the tables of a lake: on Spark, or here if they touch little."""
