"""Reports for people and for programs: one HTML page, JSON, CSV. Without Spark."""
