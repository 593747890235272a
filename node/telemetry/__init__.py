"""Records of a node's activity for spark_ops: docs/telemetry.md. It is not imported while telemetry is off."""
