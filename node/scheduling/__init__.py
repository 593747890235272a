"""The order of a broker's work: timers, a connection's share of a turn of the loop, chores that are done in pieces."""
