"""The findings about a cluster, the rules that raise them, scores and forecasts. Pure Python."""
