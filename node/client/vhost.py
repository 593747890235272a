"""The live side of a vhost on this node: its router, and the queues within reach."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from node.catalogue.records import Binding
from node.client.counters import ChannelCounters, ExchangeCounters
from node.queue.live_queue import LiveQueue
from node.queue.run import Batch, Run
from node.routing.exchange_types import ExchangeTypes
from node.routing.router import Router

if TYPE_CHECKING:
    from node.client.channel import Channel


class Tracer(Protocol):
    """Copies messages while a vhost is traced."""

    def published(self, channel: "Channel", batch: Batch, queues: Iterable[LiveQueue]) -> None:
        """Copy messages that a client publishes.   queues: those that they are routed to, on this node and others."""

    def delivered(self, channel: "Channel", queue: LiveQueue, run: Run) -> None:
        """Copy messages of a queue that a client is given."""


class LiveVhost:
    """The live side of a vhost of the catalogue.

    exchange_types: those of plug-ins.
    queues: those of this node, and those of other nodes that are up.
    tracer: makes copies of all messages; None: the vhost is not traced.
    exchange_counters: of the exchanges that clients of this node have published to, by name.
    ended: the counters of all channels that are gone.   recv_oct, send_oct: bytes of all connections that are.
    """

    def __init__(self, name: str, tracer: Tracer | None, exchange_types: ExchangeTypes | None = None) -> None:
        self.name = name
        self.tracer = tracer
        self.queues: dict[str, LiveQueue] = {}
        # By the dict and not by this object, which would be in a circle with its router.
        self.router = Router(exchange_types, partial(_is_local, self.queues))
        self.exchange_counters: dict[str, ExchangeCounters] = {}
        self.ended = ChannelCounters()
        self.recv_oct = self.send_oct = 0

    def count(self, exchange: str) -> ExchangeCounters:
        """Return the counters of an exchange that is published to."""
        counters = self.exchange_counters.get(exchange)
        if counters is None:
            counters = self.exchange_counters[exchange] = ExchangeCounters()
        return counters

    def remove_exchange(self, name: str) -> ExchangeCounters:
        """Forget an exchange that was deleted; return its counters."""
        self.router.remove_exchange(name)
        return self.exchange_counters.pop(name, ExchangeCounters())

    def is_routable(self, binding: Binding) -> bool:
        """Return True if the router has to know a binding, which exists.

        It leads to a queue within reach (amqp-behaviour §9.1), or leaves an exchange that has them all.
        """
        return (
            binding.destination_kind == "exchange"
            or binding.destination in self.queues
            or self.router.keeps_all(binding.source)
        )


def _is_local(queues: Mapping[str, LiveQueue], queue: str) -> bool:
    return queues[queue].is_local


def routed(ended: ExchangeCounters, vhosts: Iterable[LiveVhost]) -> int:
    """Return how often clients' messages reached a queue, by all exchanges.   ended: counters of deleted exchanges."""
    present = (counters for vhost in vhosts for counters in vhost.exchange_counters.values())
    return ended.publish_out + sum(counters.publish_out for counters in present)
