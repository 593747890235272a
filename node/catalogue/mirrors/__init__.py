"""Where the copies of mirrored queues are, and which of them is the master.

A view (`view.py`) names the copies of one queue, in the order of age. `views.py` has the rules by which views change:
who joins, who leaves, and who is promoted when the master's node dies. `placement.py` chooses the nodes of new queues.
"""
