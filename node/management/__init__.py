"""The management plug-in's part: the HTTP API, the metrics for Prometheus and the web UI, on a node's own loop."""
