"""Hostile clients against a node in a process of its own (issue 2, "Bad input"; reliability §5.4)."""
