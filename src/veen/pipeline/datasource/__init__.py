"""The data source ``veen``: a log as a table of Spark, and as a stream."""
