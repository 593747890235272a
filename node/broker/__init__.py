"""The broker of one node: it ties the catalogue, the queues and the clients together.

`broker.py` runs the turn; `following.py` opens and closes queues as the catalogue changes.
"""
