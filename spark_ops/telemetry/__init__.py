"""The files of telemetry: the nodes' segments, the Parquet files that `collect` writes, and their paths. No Spark."""
