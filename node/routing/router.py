"""Routing in one vhost: from an exchange and the routing keys of a message to the names of its queues.

The `Router` is a derived index: the catalogue owns the records and tells the router of every change. A route
visits each exchange at most once, breadth first, so loops of exchange-to-exchange bindings and of alternate
exchanges end. An exchange whose type a plug-in brings has a guarded index, which is asked once for all keys.

Source: amqp-behaviour §3.15 (routing, CC and BCC), §3.18 (alternate exchange).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from node.amqp.field_table import Table
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAYED_TYPE, routing_type, waiting_queue
from node.catalogue.exchange_queues import exchange_queue, is_exchange_queue
from node.catalogue.holding import hold_header
from node.catalogue.recent_history import HISTORY_TYPE
from node.catalogue.records import DEFAULT_EXCHANGE, PLAIN_EXCHANGE_TYPES, Binding, Exchange
from node.catalogue.retained import RETAINED_TYPE
from node.routing.exchange_types import ExchangeTypes
from node.routing.exchanges import STATES_MAX, BindingIndex, too_many_ways
from node.routing.exchanges.delayed import DelayedIndex
from node.routing.exchanges.direct import DirectIndex
from node.routing.exchanges.fanout import FanoutIndex
from node.routing.exchanges.headers import HeadersIndex
from node.routing.exchanges.kept import KeptIndex
from node.routing.exchanges.topic import TopicIndex
from node.routing.guarded_index import GuardedIndex
from node.routing.plugins import Message

_INDEXES: Final[dict[str, Callable[[], BindingIndex]]] = {
    "direct": DirectIndex,
    "fanout": FanoutIndex,
    "topic": TopicIndex,
    "headers": HeadersIndex,
}

assert _INDEXES.keys() == PLAIN_EXCHANGE_TYPES

_ROUTED_AS: Final = {DEDUPLICATION_TYPE: "fanout", HISTORY_TYPE: "fanout"}
"""The types that route as another one does."""


class _RoutedExchange:
    """An exchange as routing needs it: its bindings, its alternate exchange, and the exchanges bound to it.

    filtered_by: the queue to which all messages go instead, and from where the rest of them is routed.
    kept_by: the queue that gets each message besides, which is no route for it.
    """

    __slots__ = ("alternate", "filtered_by", "index", "kept_by", "targets")

    def __init__(self, index: BindingIndex | GuardedIndex, alternate: str | None) -> None:
        self.index = index
        self.alternate = alternate
        self.targets: dict[str, int] = {}
        """The exchanges that bindings lead to, with the number of those bindings."""
        self.filtered_by: str | None = None
        self.kept_by: str | None = None

    def successors(self) -> Iterator[str]:
        """Yield the exchanges to which this one may pass a message on."""
        yield from self.targets
        if self.alternate is not None:
            yield self.alternate


class Router:
    """Routes the messages of one vhost to the names of queues.

    The default exchange leads to each queue by its name, those of delayed exchanges left out; it takes no
    `bind`. It does so only for messages published to it: as an alternate exchange it leads nowhere, since its
    bindings are implicit (RabbitMQ 3.10.8 does the same). Exchanges that do not exist are skipped wherever
    their names turn up, so the order in which the catalogue reports the parts of one change does not matter.

    types: those of plug-ins; None: no plug-in is ever enabled.   is_local: True if a reachable queue is on this node.
    """

    def __init__(
        self, types: ExchangeTypes | None = None, is_local: Callable[[str], bool] = lambda name: True
    ) -> None:
        self._types = types or ExchangeTypes()
        self._is_local = is_local
        self._exchanges: dict[str, _RoutedExchange] = {}
        self._queues: set[str] = set()
        self._varying: set[str] = set()
        """The exchanges whose routes may differ from message to message with the same keys and headers."""

    def add_queue(self, name: str) -> None:
        """Make a queue reachable by its name through the default exchange."""
        self._queues.add(name)

    def remove_queue(self, name: str) -> None:
        """Forget a queue. Its bindings are unbound one by one."""
        self._queues.discard(name)

    def add_exchange(self, record: Exchange, alternate: str | None) -> None:
        """Take in a new exchange, without bindings. The default exchange needs none, and is ignored.

        alternate: the effective alternate exchange (argument before policy, §3.18); it need not exist.
        """
        if record.name == DEFAULT_EXCHANGE:
            return
        assert record.name not in self._exchanges, record.name
        routed = self._exchanges[record.name] = _RoutedExchange(self._index(record), alternate)
        if record.type == DEDUPLICATION_TYPE:
            routed.filtered_by = exchange_queue(record.type, record.name)
        elif record.type in (HISTORY_TYPE, RETAINED_TYPE):
            routed.kept_by = exchange_queue(record.type, record.name)

    def _index(self, record: Exchange) -> BindingIndex | GuardedIndex:
        if record.type == DELAYED_TYPE:
            inner = _INDEXES[routing_type(record.arguments)]()
            header = hold_header(record.arguments)
            return DelayedIndex(inner, waiting_queue(record.name), self._queues, header)
        if record.type == RETAINED_TYPE:
            return KeptIndex()
        built_in = _INDEXES.get(_ROUTED_AS.get(record.type, record.type))
        return self._plugged(record) if built_in is None else built_in()

    def _plugged(self, record: Exchange) -> GuardedIndex:
        queues, is_local_queue = (
            self._queues,
            self._is_local,
        )  # not this object: the index would be in a circle with it

        def is_local(queue: str) -> bool:
            return queue in queues and is_local_queue(queue)

        index = self._types.index(record, queues.__contains__, is_local)
        if index.varies:
            self._varying.add(record.name)
        return index

    def kept_by(self, exchange: str) -> str | None:
        """Return the name of the queue that has the last messages of an exchange; None: there is none."""
        found = self._exchanges.get(exchange)
        return None if found is None else found.kept_by

    def keeps_all(self, exchange: str) -> bool:
        """Return True if an exchange is to have bindings to queues out of reach, too, as all nodes must know the same.

        Which queue a hash leads to must not depend on the nodes that are down.
        """
        found = self._exchanges.get(exchange)
        return found is not None and isinstance(found.index, GuardedIndex)

    def remove_exchange(self, name: str) -> None:
        """Forget an exchange and the bindings from it. The bindings to it are unbound one by one."""
        self._exchanges.pop(name, None)
        self._varying.discard(name)

    def set_alternate(self, name: str, alternate: str | None) -> None:
        """Change the effective alternate exchange of an existing exchange: a policy came or went.

        The default exchange leads to queues alone, whatever policy matches it.
        """
        if name != DEFAULT_EXCHANGE:
            self._exchanges[name].alternate = alternate

    def bind(self, binding: Binding) -> None:
        """Take in a new binding, once per binding record; its source exists."""
        source = self._exchanges[binding.source]
        source.index.bind(binding)
        if binding.destination_kind == "exchange":
            target = binding.destination
            source.targets[target] = source.targets.get(target, 0) + 1

    def unbind(self, binding: Binding) -> None:
        """Forget a binding that was bound; nothing to do when its source is gone already."""
        source = self._exchanges.get(binding.source)
        if source is None:
            return
        source.index.unbind(binding)
        if binding.destination_kind == "exchange":
            target = binding.destination
            source.targets[target] -= 1
            if not source.targets[target]:
                del source.targets[target]

    def route(
        self,
        exchange: str,
        routing_keys: Sequence[str],
        headers: Table | None = None,
        content: bytes | None = None,
        past: str | None = None,
    ) -> list[str]:
        """Return the names of the queues that a message goes to: each once, sorted.

        routing_keys: the publish key, then those of CC and BCC; at least one.
        headers: at least those of `headers_asked(exchange)`; None when there are none.
        content: of the message, for exchanges that vary; None when there is none.
        past: the exchange whose filter has let the message pass.
        An exchange that does not exist leads nowhere: refusing the publish (§4.1) is the caller's business.
        Raises: ProtocolError 406 for a message that may match in more ways than `STATES_MAX`, or that a plug-in
        cannot route.
        """
        if exchange == DEFAULT_EXCHANGE:
            found = self._queues.intersection(routing_keys)
            return sorted(name for name in found if not is_exchange_queue(name))
        queues: set[str] = set()
        reached = {exchange}
        pending = [exchange]  # grows while it is walked: breadth first
        states = 0
        for name in pending:
            visited = self._exchanges.get(name)
            if visited is None:
                continue
            if visited.filtered_by is not None and name != past:
                if visited.filtered_by in self._queues:
                    queues.add(visited.filtered_by)
                continue
            if visited.kept_by is not None and visited.kept_by in self._queues:
                queues.add(visited.kept_by)
            following = []
            selected = False
            index = visited.index
            if isinstance(index, GuardedIndex):
                asked = headers if index.headers_asked else None
                for kind, destination in index.route(
                    Message(routing_keys, content, self._types.decode, asked)
                ):
                    if kind == "exchange":
                        selected = True
                        following.append(destination)
                    elif destination in self._queues:
                        selected = True
                        queues.add(destination)
            else:
                for key in routing_keys if index.uses_routing_key else routing_keys[:1]:
                    if states > STATES_MAX:
                        raise too_many_ways(key)
                    for kind, destination in index.match(key, headers):
                        selected = True
                        if kind == "queue":
                            queues.add(destination)
                        else:
                            following.append(destination)
                    states += 1 + index.states
            if not selected and visited.alternate is not None:
                following.append(visited.alternate)
            for successor in following:
                if successor not in reached:
                    reached.add(successor)
                    pending.append(successor)
        return sorted(queues)

    def headers_asked(self, exchange: str) -> Collection[bytes]:
        """Return the names of all headers that the route of a message published to `exchange` may depend on.

        The answer, and a route that depends on no headers, hold until the topology changes.
        """
        found = [each.index.headers_asked for each in self._reachable(exchange) if each.index.headers_asked]
        # Not copied where it can be helped: there may be a hundred thousand of them.
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def varies(self, exchange: str) -> bool:
        """Return True if messages with the same keys and headers that are published to `exchange` may part ways.

        The answer holds until the topology changes.
        """
        if not self._varying:
            return False
        reachable = (each.index for each in self._reachable(exchange))
        return any(isinstance(index, GuardedIndex) and index.varies for index in reachable)

    def _reachable(self, exchange: str) -> Iterator[_RoutedExchange]:
        """Yield the exchanges that a message published to `exchange` may come to, each once."""
        reached = {exchange}
        pending = [exchange]  # grows while it is walked: breadth first
        for name in pending:
            visited = self._exchanges.get(name)
            if visited is None:
                continue
            yield visited
            for successor in visited.successors():
                if successor not in reached:
                    reached.add(successor)
                    pending.append(successor)
