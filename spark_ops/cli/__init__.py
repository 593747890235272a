"""The command `spark-ops`, a file for each of its commands."""
