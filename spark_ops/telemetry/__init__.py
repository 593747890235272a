"""Telemetry as files: what nodes write, what `collect` makes of it, where it lies. Without Spark."""
