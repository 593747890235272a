"""Shovels: each takes messages from a queue or exchange and publishes them elsewhere. No I/O."""
