"""Plans are carried out on a live cluster by its HTTP API. Without Spark."""
