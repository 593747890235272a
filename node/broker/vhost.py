"""A vhost as it lives on this node: its router, and the queues within reach."""

from node.broker.live_queue import LiveQueue
from node.broker.records import Binding
from node.broker.routing import Router


class LiveVhost:
    """The live side of a vhost of the catalogue.

    queues: those of this node, and those of other nodes that are up.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.router = Router()
        self.queues: dict[str, LiveQueue] = {}

    def is_routable(self, binding: Binding) -> bool:
        """Whether a binding leads anywhere: its queue is within reach. It must be there (§9.1)."""
        return binding.destination_kind == "exchange" or binding.destination in self.queues
