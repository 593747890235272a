"""Hostile clients against a node in a process of its own (docs/security.md, "Hostile clients"; reliability §5.4)."""
