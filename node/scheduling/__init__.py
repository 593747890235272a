"""When a broker works on what.

Timers, the share of a connection in a turn of the loop, and chores that are done in pieces.
"""
