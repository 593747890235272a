"""The tools that operators run on the nodes' telemetry: health, forecasts, rebalance plans, reports. No broker imports
it."""
