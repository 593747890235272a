"""When a broker works on what: timers, turns that are bounded by the clock, and chores that are done in pieces."""
