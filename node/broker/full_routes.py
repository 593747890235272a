"""The routes of messages that a broker publishes itself, with the durable queues that are out of reach just now.

A queue without mirrors is out of reach while its node is down, and routers leave it out: a client is told that its
message goes nowhere (amqp-behaviour §9.1). Nobody can be told of a message that was delayed, or that died. So it waits
until all queues are there to which it goes.
Source: docs/delayed.md, docs/dead_letters.md.
"""

from collections.abc import Sequence
from typing import Protocol

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.catalogue import Catalogue
from node.catalogue.policy import alternate_exchange
from node.catalogue.records import DEFAULT_EXCHANGE, Binding
from node.client.vhost import LiveVhost
from node.routing.exchange_types import ExchangeTypes
from node.routing.router import Router


class RoutingHost(Protocol):
    """The broker, as far as routes need it."""

    catalogue: Catalogue
    exchange_types: ExchangeTypes
    vhosts: dict[str, LiveVhost]


class FullRoutes:
    """Tells whether messages go to queues that are out of reach.

    While all nodes are up that costs a look at each node. Else the part of a vhost's topology that an exchange leads to
    is indexed once for each version of the catalogue: a microsecond for each binding.
    """

    def __init__(self, host: RoutingHost) -> None:
        self._host = host
        self._version = -1
        self._absent: dict[str, set[str]] = {}  # by vhost
        self._routers: dict[tuple[str, str], Router] = {}  # by vhost and exchange

    def lack(
        self,
        vhost: str,
        exchange: str,
        routing_keys: Sequence[str],
        headers: Table | None,
        content: bytes,
        past: str | None = None,
    ) -> bool:
        """Return True if a message goes to a queue that is out of reach. The arguments are those of `Router.route`."""
        catalogue = self._host.catalogue
        if all(member.is_up for member in catalogue.members.values()):
            return False
        if catalogue.version != self._version:
            self._version = catalogue.version
            self._absent.clear()
            self._routers.clear()
        absent = self._absent.get(vhost)
        if absent is None:
            absent = self._absent[vhost] = self._find_absent(vhost)
        if not absent:
            return False
        if exchange == DEFAULT_EXCHANGE:
            return not absent.isdisjoint(routing_keys)
        router = self._routers.get((vhost, exchange))
        if router is None:
            router = self._routers[vhost, exchange] = self._router(vhost, exchange)
        try:
            return not absent.isdisjoint(router.route(exchange, routing_keys, headers, content, past))
        except ProtocolError:
            return False  # it costs too much, or a plug-in fails: it goes nowhere

    def _find_absent(self, vhost: str) -> set[str]:
        """Return the queues that come back with their nodes."""
        live = self._host.vhosts[vhost].queues
        return {
            record.name
            for record in self._host.catalogue.queues(vhost)
            if record.name not in live and record.durable and record.exclusive_owner is None
        }

    def _router(self, vhost: str, exchange: str) -> Router:
        """Return a router that knows all queues, and the exchanges to which an exchange leads."""
        catalogue = self._host.catalogue
        router = Router(self._host.exchange_types, lambda name: False)
        for queue in catalogue.queues(vhost):
            router.add_queue(queue.name)
        reached, pending = {exchange}, [exchange]  # grows while it is walked
        bindings: list[Binding] = []
        for name in pending:
            record = catalogue.exchange(vhost, name)
            if record is None:
                continue
            alternate = alternate_exchange(record.arguments, catalogue.effective_policy(record))
            router.add_exchange(record, alternate)
            own = catalogue.bindings_from(vhost, name)
            bindings += own
            following = [each.destination for each in own if each.destination_kind == "exchange"]
            for successor in following if alternate is None else [*following, alternate]:
                if successor not in reached:
                    reached.add(successor)
                    pending.append(successor)
        for binding in bindings:
            router.bind(binding)
        return router
