"""Routing: from an exchange and the routing keys of a message to the names of queues.

`router.py` has the exchanges of a vhost; `exchanges/` has an index of bindings for each type of exchange.
"""
