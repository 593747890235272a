"""The interface of plug-ins that bring exchange types: what they are given, and what they have to give.

An exchange type is a pure function of the bindings of an exchange and of a message: it leads to queues and other
exchanges that are bound. It must do no I/O and must not wait, as all clients of the node wait with it. Every node
has an index of its own, and each is given the same bindings in the same order; so an index that looks at nothing
else routes alike on all nodes. A number for random choices comes from `Surroundings`.

`node.plugins` has these names for plug-ins that are packages of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from node.amqp.field_table import Table
from node.amqp.properties import Properties
from node.catalogue.records import Binding
from node.extension.auth_backend import AuthBackend
from node.extension.delivery_interceptor import DeliveryInterceptor
from node.extension.http import HttpResource, UiPage
from node.extension.interceptor import MessageInterceptor
from node.extension.peer_discovery import PeerDiscovery
from node.extension.protocol import ProtocolListener
from node.extension.setting import PREFIX, Setting, Settings, read_settings
from node.extension.telemetry import TelemetryColumns
from node.routing.exchanges import Destination


class Message:
    """A message that is to be routed. Its parts are not to be changed.

    routing_keys: the key of the publish, then those of the headers CC and BCC; at least one.
    """

    __slots__ = ("_content", "_decode", "_headers", "_properties", "routing_keys")

    def __init__(
        self,
        routing_keys: Sequence[str],
        content: bytes | None = None,
        decode: Callable[[bytes], Properties] | None = None,
        headers: Table | None = None,
    ) -> None:
        """Make a message.

        content: its frames; None if they are not there.   decode: reads the properties in them.
        headers: those that its route may depend on, if they are known; None: they are read from the content.
        """
        self.routing_keys = routing_keys
        self._content = content
        self._decode = decode
        self._headers = headers
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        """The properties, which are decoded when they are asked for first."""
        if self._properties is None:
            if self._content is None or self._decode is None:
                self._properties = Properties()
            else:
                self._properties = self._decode(self._content)
        return self._properties

    @property
    def headers(self) -> Table:
        """The headers, or those of `ExchangeType.headers_asked` if there are such; none if the message has none."""
        return (self.properties.headers or {}) if self._headers is None else self._headers


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The knowledge that an index may use besides its bindings and the message.

    random_below: returns a random number from 0 to below its argument.
    is_within_reach: True if the queue of that name can take messages now.
    is_local: True if that queue, or its master, is on this node.
    """

    random_below: Callable[[int], int]
    is_within_reach: Callable[[str], bool]
    is_local: Callable[[str], bool]


class ExchangeIndex(Protocol):
    """The bindings from one exchange, arranged for its type.

    `bind` and `unbind` are called once for each binding, in the same order on all nodes; those that `check_binding`
    refuses are kept away. A destination may be out of reach at the time, and messages to it are not delivered then.
    """

    @property
    def varies(self) -> bool:
        """False if the same routing keys always lead to the same destinations until a binding changes.

        Such a route is kept for many messages, and their properties are not there, but for the headers that
        `ExchangeType.headers_asked` names: messages that differ in these may part ways. Read once for each exchange.
        """

    def bind(self, binding: Binding) -> None:
        """Take in a new binding."""

    def unbind(self, binding: Binding) -> None:
        """Forget a binding that was bound before."""

    def route(self, message: Message) -> Iterable[Destination]:
        """Return the destinations of a message; at most as many as there are bindings."""


class ExchangeType(ABC):
    """An exchange type; a plug-in derives its own from it.

    name: the type in `exchange.declare`, e.g. `x-random`.   description: for operators.
    """

    name: ClassVar[str]
    description: ClassVar[str]

    def check_exchange(self, arguments: Table) -> str | None:
        """Return the reason why an exchange cannot have these arguments: the text of a 406. None: it can."""
        return None

    def check_binding(self, routing_key: str, arguments: Table) -> str | None:
        """Return the reason why a binding cannot be like this: the text of a 406. None: it can.

        The answer depends on nothing else, so that a binding is refused or taken by all nodes alike.
        """
        return None

    def headers_asked(self, arguments: Table) -> Collection[str]:
        """Return the names of the headers that routes depend on, besides the routing keys; by default none.

        arguments: those of the exchange.   An index that varies is given all headers, whatever this says.
        """
        return ()

    @abstractmethod
    def index(self, arguments: Table, surroundings: Surroundings) -> ExchangeIndex:
        """Return the index of an exchange without bindings.   arguments: those of the exchange."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in: the object to which an entry point of the group `fluffle.plugins` leads.

    name: as in the file of enabled plug-ins, and that of the entry point.   description, version: for operators.
    listeners: the class of its protocol's listener, at most one.
    interceptors: the classes of what looks at messages before they are routed.   delivery_interceptors: of what looks
        at them on their way to clients.
    http: the class of what answers HTTP requests below its name.   page: its page in the web UI.
    telemetry: the class of its columns in the telemetry of nodes.
    peer_discovery: the classes of its ways to find the nodes of a cluster.
    auth_backends: the classes of its ways to authenticate and authorise; the node makes an object of each.
    settings: what an operator may set in the configuration file.   prefix: of their keys; empty: `plugin.NAME`.
    borrowed: settings of another plug-in that its listener reads, too, and their prefix.
    """

    name: str
    version: str
    description: str
    exchange_types: tuple[ExchangeType, ...] = ()
    auth_backends: tuple[type[AuthBackend], ...] = ()
    settings: tuple[Setting, ...] = ()
    prefix: str = ""
    listeners: tuple[type[ProtocolListener], ...] = ()
    interceptors: tuple[type[MessageInterceptor], ...] = ()
    delivery_interceptors: tuple[type[DeliveryInterceptor], ...] = ()
    http: type[HttpResource] | None = None
    page: UiPage | None = None
    telemetry: type[TelemetryColumns] | None = None
    peer_discovery: tuple[type[PeerDiscovery], ...] = ()
    borrowed: tuple[str, tuple[Setting, ...]] = ("", ())

    @property
    def all_settings(self) -> tuple[Setting, ...]:
        """The settings, with those of the ports of its listener."""
        assert len(self.listeners) <= 1, "a plug-in has at most one listener"
        return (*self.settings, *(each for kind in self.listeners for each in kind.port_settings()))

    def listener_settings(self, given: Mapping[str, str]) -> Settings:
        """Return the settings for its listener: its own by their keys, those that it borrows by whole keys.

        given: as `read_settings`. Raises: SettingError.
        """
        prefix, borrowed = self.borrowed
        others = read_settings(prefix, borrowed, given) if borrowed else {}
        own = read_settings(self.settings_prefix, self.all_settings, given)
        return {**own, **{f"{prefix}.{key}": value for key, value in others.items()}}

    @property
    def settings_prefix(self) -> str:
        """The prefix of the keys of the settings in a configuration file."""
        return self.prefix or f"{PREFIX}.{self.name}"
