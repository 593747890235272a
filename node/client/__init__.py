"""A client as the broker sees it: its connection, its channels, and the handlers of methods.

`connection.py` takes bytes and returns bytes; `channel.py` publishes, delivers and settles; `handlers/` has the
methods, a file for each class of AMQP. `host.py` has the protocol by which clients use the broker.
"""
