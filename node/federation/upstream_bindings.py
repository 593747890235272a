"""The bindings of an exchange here, as a link makes them upstream from the exchange there to its internal one.

Bindings here that differ in their destinations alone are one upstream: it is made with the first, and removed with the
last. One that another broker's link has made here is passed on as it is, with one hop less.
Source: RabbitMQ 3.10.8, `rabbit_federation_exchange_link`, `record_binding` and `forget_binding`.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from node.amqp.field_table import Table
from node.amqp.methods import ExchangeBind, ExchangeUnbind
from node.catalogue.binding_key import arguments_key
from node.catalogue.records import Binding
from node.federation.hops import is_passed_on
from node.plugins import Destination, destination_of

UNANSWERED_MAX: Final = 64
"""The most bindings and unbindings that are on their way at a time."""

Change: TypeAlias = ExchangeBind | ExchangeUnbind


class UpstreamBindings:
    """The bindings of one link, and the changes that are to be made upstream, in their order.

    source, internal: the exchanges upstream.   arguments_of: gives the arguments of a binding upstream; None: it is
    not made there.   nowait: changes are not answered.
    Memory follows the bindings of the exchange here.
    """

    def __init__(
        self, source: str, internal: str, arguments_of: Callable[[Table], Table | None], *, nowait: bool
    ) -> None:
        self._source = source
        self._internal = internal
        self._arguments_of = arguments_of
        self._nowait = nowait
        self._destinations: dict[tuple[str, Hashable], set[Destination]] = {}
        self._changes: deque[Change] = deque()
        self._unanswered = 0

    @property
    def is_settled(self) -> bool:
        """True if all changes were made."""
        return not self._changes and not self._unanswered

    def add(self, binding: Binding) -> None:
        """Note a new binding here."""
        if not is_passed_on(binding.arguments):
            known = self._destinations.setdefault(_key(binding), set())
            known.add(destination_of(binding))
            if len(known) > 1:
                return
        arguments = self._arguments_of(binding.arguments)
        if arguments is not None:
            self._changes.append(
                ExchangeBind(
                    destination=self._internal,
                    source=self._source,
                    routing_key=binding.routing_key,
                    nowait=self._nowait,
                    arguments=arguments,
                )
            )

    def remove(self, binding: Binding) -> None:
        """Note that a binding here is gone."""
        if not is_passed_on(binding.arguments):
            key = _key(binding)
            known = self._destinations.get(key, set())
            known.discard(destination_of(binding))
            if known or key not in self._destinations:
                return
            del self._destinations[key]
        arguments = self._arguments_of(binding.arguments)
        if arguments is not None:
            self._changes.append(
                ExchangeUnbind(
                    destination=self._internal,
                    source=self._source,
                    routing_key=binding.routing_key,
                    nowait=self._nowait,
                    arguments=arguments,
                )
            )

    def take(self) -> Change | None:
        """Return the next change to be made; None: there is none, or too many have no answer yet."""
        if not self._changes or self._unanswered >= UNANSWERED_MAX:
            return None
        if not self._nowait:
            self._unanswered += 1
        return self._changes.popleft()

    def answered(self) -> None:
        """Note that the oldest change without an answer was made."""
        self._unanswered -= 1


def _key(binding: Binding) -> tuple[str, Hashable]:
    return binding.routing_key, arguments_key(binding.arguments)
