"""What operators run on the telemetry of nodes: health, forecasts, rebalance plans, reports. No broker imports it."""
