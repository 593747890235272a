"""Three nodes, an uneven load by real clients, and what spark_ops makes of it. See __main__.py."""
