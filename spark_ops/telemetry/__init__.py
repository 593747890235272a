"""Telemetry as files: the nodes' segments, the Parquet files that `collect` makes of them, their paths. Without
Spark."""
