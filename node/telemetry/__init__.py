"""Records of a node's activity for spark_ops: docs/telemetry.md. While telemetry is off, this package is not imported."""
