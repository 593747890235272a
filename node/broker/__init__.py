"""The broker of one node: it ties the catalogue, the queues and the clients together.

`broker.py` runs the turn; `following.py` makes live what the catalogue says.
"""
