"""A queue: its messages, its consumers, what it asks of the disk, of mirrors and of the broker."""
