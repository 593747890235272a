"""Reports about health and plans, as one HTML page, JSON, CSV and Parquet. Without Spark."""
