"""Mirrored queues in the catalogue: where their copies are, and which copy is the master.

A view (`view.py`) names the copies of one queue, in the order of age. `views.py` has the rules by which views change:
which copies join, leave and are promoted when the master's node dies. `placement.py` chooses the nodes of new queues.
"""
