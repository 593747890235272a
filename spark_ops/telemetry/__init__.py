"""Telemetry as files: the nodes' segments, the Parquet files that `collect` makes, their paths. Without Spark."""
