"""The Spark data source ``veen``: a log as a table, and as a stream."""
