"""The exchange type `x-modulus-hash`: a message goes to one binding, whose number is a hash modulo their number.

It hashes the routing keys of the message; those of bindings only give the order. When the number of bindings changes,
nearly all keys go elsewhere: `x-consistent-hash` is for that. Of RabbitMQ's plug-in this is the exchange type; its
policies, which make queues for shards, are not here.
Source: RabbitMQ 3.10.8, `rabbit_sharding_exchange_type_modulus_hash`, and live.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from node.plugins import (
    VERSION,
    Binding,
    Destination,
    ExchangeIndex,
    ExchangeType,
    Message,
    Plugin,
    Surroundings,
    Table,
)
from node.plugins.exchanges.erlang_hash import phash2
from node.plugins.exchanges.sorted_bindings import SortedBindings


class ModulusHashIndex:
    """The bindings of an exchange by number."""

    varies: ClassVar[bool] = False

    def __init__(self) -> None:
        self._bindings = SortedBindings()

    def bind(self, binding: Binding) -> None:
        """Add a binding; the numbers of those that come after it in their order rise."""
        self._bindings.add(binding)

    def unbind(self, binding: Binding) -> None:
        """Remove a binding."""
        self._bindings.remove(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destination of the binding that the keys lead to."""
        if not self._bindings:
            return ()
        keys = phash2([key.encode("utf-8", "surrogateescape") for key in message.routing_keys])
        return (self._bindings[keys % len(self._bindings)],)


class ModulusHash(ExchangeType):
    """The exchange type `x-modulus-hash`."""

    name = "x-modulus-hash"
    description = "Modulus Hashing Exchange"

    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return an index without bindings."""
        return ModulusHashIndex()


PLUGIN: Final = Plugin("rabbitmq_sharding", VERSION, "exchange type x-modulus-hash", (ModulusHash(),))
