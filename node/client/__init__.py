"""A client as the broker sees it: its connection, its channels, and what each method does."""
