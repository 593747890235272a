"""A client as the broker sees it: its connection, its channels, and the handlers of methods.

`connection.py` takes bytes and leaves bytes; `channel.py` publishes, delivers and settles; `handlers/` has the methods,
a file for each class of AMQP. What clients ask of the broker around them is the protocol in `host.py`.
"""
