"""Records of what a node does, for spark_ops: docs/telemetry.md. Nothing of it is imported while it is off."""
