"""A guard around the index of a plug-in, so that no fault of foreign code gets any further than its exchange.

An index that raises on a message refuses that message alone. One that raises on a binding no longer has all bindings,
so its exchange refuses all messages from then on, rather than route some of them wrongly, until it is made anew.
"""

from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.names import resource
from node.catalogue.records import Binding, Exchange
from node.routing.exchanges import Destination
from node.routing.plugins import ExchangeType, Message, Surroundings

_KINDS: Final = ("queue", "exchange")


class GuardedIndex:
    """The bindings from one exchange whose type a plug-in brings.

    type_: None if the node does not have the plug-in.   problem: the reason, for that case.
    failed: told of each fault: its place, and the exception.
    varies: False if the same routing keys and headers lead to the same destinations until a binding changes.
    headers_asked: the names of those headers. An index that varies has none, and is given all.
    """

    __slots__ = ("_bindings", "_failed", "_index", "_problem", "_type", "_where", "headers_asked", "varies")

    def __init__(
        self,
        record: Exchange,
        type_: ExchangeType | None,
        problem: str,
        surroundings: Surroundings,
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._type = type_
        self._where = resource("exchange", record.name, record.vhost)
        self._problem = problem
        self._failed = failed
        self._bindings = 0
        self._index = None
        self.varies = True
        self.headers_asked: Collection[bytes] = ()
        if type_ is None:
            return
        try:
            refusal = type_.check_exchange(record.arguments)
            if refusal is None:
                self._index = type_.index(record.arguments, surroundings)
                self.varies = bool(self._index.varies)
                if not self.varies:
                    names = type_.headers_asked(record.arguments)
                    self.headers_asked = frozenset(name.encode("utf-8", "surrogateescape") for name in names)
            else:
                # Definitions may bring an exchange that no client could have declared.
                self._problem = refusal
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._fail("make an index for", error)

    def bind(self, binding: Binding) -> None:
        """Give the index a new binding, unless its type refuses such a binding."""
        index = self._index
        if index is None or self._type is None:
            return
        try:
            if self._type.check_binding(binding.routing_key, binding.arguments) is None:
                index.bind(binding)
                self._bindings += 1
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._fail("take in a binding of", error)

    def unbind(self, binding: Binding) -> None:
        """Take a binding from the index, unless its type has refused it."""
        index = self._index
        if index is None or self._type is None:
            return
        try:
            if self._type.check_binding(binding.routing_key, binding.arguments) is None:
                index.unbind(binding)
                self._bindings -= 1
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._fail("forget a binding of", error)

    def route(self, message: Message) -> list[Destination]:
        """Return the destinations of a message. Raises: ProtocolError 406 if the index cannot tell them."""
        if self._index is None:
            raise self._refusal(self._problem)
        try:
            found = list(islice(self._index.route(message), self._bindings + 1))
            assert len(found) <= self._bindings, "more destinations than bindings"
            assert all(kind in _KINDS and isinstance(name, str) for kind, name in found), "no destinations"
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self._failed(f"route a message of {self._where}", error)
            raise self._refusal("its plug-in failed; the log has the reason") from None
        return found

    def _fail(self, action: str, error: Exception) -> None:
        self._index = None
        self._problem = "its plug-in failed; the log has the reason"
        self.varies = True
        self.headers_asked = ()
        self._failed(f"{action} {self._where}", error)

    def _refusal(self, problem: str) -> ProtocolError:
        return ProtocolError(ReplyCode.PRECONDITION_FAILED, f"{self._where} cannot route messages: {problem}")
