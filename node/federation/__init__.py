"""Federation: exchanges and queues that get messages from brokers elsewhere, as RabbitMQ's plug-in does it. No I/O.

A *link* belongs to one exchange or queue here, the downstream, and one upstream: it consumes there and publishes here.

    upstreams, sets and policies ─► plan.py: which links there are, and which node runs each
    one link ─► exchange_link.py, queue_link.py: events of two connections in, requests out
"""
