"""Plans: which copies and masters should go where, in which steps. Pure Python; nothing here talks to a node."""
