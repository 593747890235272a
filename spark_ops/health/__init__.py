"""Findings about a cluster, the rules that raise them, scores and forecasts; without I/O and Spark."""
