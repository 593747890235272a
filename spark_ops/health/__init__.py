"""What findings mean, scores and forecasts. Pure Python."""
