"""The benchmark: Fluffle and RabbitMQ side by side, driven by one load generator of our own.

Nothing here imports `node`: the generator speaks AMQP from bytes it builds itself, so that it judges the
broker independently. Run it with `make bench` or `python -m bench --help`; docs/benchmark.md explains it.
"""
