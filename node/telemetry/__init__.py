"""Records of a node's activity for spark_ops: docs/telemetry.md. Nothing of it is imported while it is off."""
