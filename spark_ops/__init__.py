"""Tools that operators run on the nodes' telemetry: health, forecasts, plans, reports. No broker imports it."""
