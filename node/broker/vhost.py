"""A vhost as it lives on this node: its router and its queues."""

from node.broker.queue import Queue
from node.broker.routing import Router


class LiveVhost:
    """The live side of a vhost of the catalogue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.router = Router()
        self.queues: dict[str, Queue] = {}
