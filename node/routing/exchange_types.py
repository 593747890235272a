"""The exchange types that plug-ins bring to this node, while the catalogue says that these plug-ins are enabled.

The catalogue decides which types there are; this registry knows the code. A plug-in that the catalogue needs and this
node lacks is named in errors, and nothing is guessed: its exchanges can be declared on other nodes, and exist here,
but route no messages of this node.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.amqp.properties import Properties
from node.catalogue.records import Exchange
from node.routing.guarded_index import GuardedIndex
from node.routing.plugins import ExchangeType, Plugin, Surroundings

_RANDOM_BYTES: Final = 8
"""The random bytes of a choice: so many that the lower numbers are not chosen more often in a noticeable way."""


class Failure(NamedTuple):
    """A fault of a plug-in.

    plugin: its name.   action: what it could not do, beginning with a verb.   number: of its faults so far.
    """

    plugin: str
    action: str
    error: Exception
    number: int


class _Known(NamedTuple):
    """An exchange type of an enabled plug-in.   type: None if this node does not have it."""

    plugin: str
    type: ExchangeType | None
    problem: str


def no_plugin(name: str) -> Plugin | None:
    """Return no plug-in, whatever its name: for a broker without any."""
    return None


def _not_known(content: bytes) -> Properties:
    return Properties()


class ExchangeTypes:
    """The exchange types of enabled plug-ins.

    load: returns the plug-in of a name, None if it is not installed; it may raise anything.
    entropy: returns that many random bytes.   decode: returns the properties of a content.
    on_failure: told of a plug-in's first fault, and then each time when their number has doubled, so that a fault for
        each message cannot fill the log.
    """

    def __init__(
        self,
        load: Callable[[str], Plugin | None] = no_plugin,
        entropy: Callable[[int], bytes] = bytes,
        decode: Callable[[bytes], Properties] = _not_known,
        on_failure: Callable[[Failure], None] = lambda failure: None,
    ) -> None:
        self.decode = decode
        self._load = load
        self._entropy = entropy
        self._on_failure = on_failure
        self._known: dict[str, _Known] = {}
        self._loaded: dict[str, Plugin | None] = {}
        self.watchers: list[Callable[[], None]] = []
        """Functions that are called when a plug-in was enabled or disabled."""
        self.failures: Counter[str] = Counter()
        """The number of faults of each plug-in."""

    @property
    def plugins(self) -> Iterator[tuple[str, Plugin | None]]:
        """The enabled plug-ins by name; None for one that this node lacks or could not load."""
        return iter(self._loaded.items())

    def enable(self, plugin: str, types: tuple[str, ...]) -> None:
        """Load a plug-in, and use it for the exchange types that it brings by the catalogue."""
        self.disable(plugin)
        problem = f"plug-in '{plugin}' is not installed on this node"
        loaded: Plugin | None = None
        try:
            loaded = self._load(plugin)
            found = {} if loaded is None else {type_.name: type_ for type_ in loaded.exchange_types}
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises while it is imported
            problem = f"plug-in '{plugin}' cannot be loaded on this node"
            loaded, found = None, {}
            self.failed(plugin, "be loaded", error)
        self._loaded[plugin] = loaded
        if loaded is not None:
            problem = f"plug-in '{plugin}' of this node has no such exchange type"
        for name in types:
            self._known[name] = _Known(plugin, found.get(name), problem)
        self._tell_watchers()

    def disable(self, plugin: str) -> None:
        """Forget a plug-in and its exchange types; nothing to do if it is not known."""
        self._loaded.pop(plugin, None)
        self._known = {name: known for name, known in self._known.items() if known.plugin != plugin}
        self._tell_watchers()

    def index(
        self, record: Exchange, is_within_reach: Callable[[str], bool], is_local: Callable[[str], bool]
    ) -> GuardedIndex:
        """Return the index of an exchange of one of these types, without bindings."""
        known = self._known[record.type]
        surroundings = Surroundings(self._random_below, is_within_reach, is_local)
        return GuardedIndex(
            record,
            known.type,
            known.problem,
            surroundings,
            lambda action, error: self.failed(known.plugin, action, error),
        )

    def check_exchange(self, type_: str, arguments: Table) -> None:
        """Check the arguments of a new exchange of any type that the catalogue knows. Raises: ProtocolError 406."""
        known = self._known.get(type_)
        if known is not None:
            self._check(known, lambda found: found.check_exchange(arguments))

    def check_binding(self, type_: str, routing_key: str, arguments: Table) -> None:
        """Check a new binding from an exchange of any type. Raises: ProtocolError 406."""
        known = self._known.get(type_)
        if known is not None:
            self._check(known, lambda found: found.check_binding(routing_key, arguments))

    def _check(self, known: _Known, check: Callable[[ExchangeType], str | None]) -> None:
        if known.type is None:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, known.problem)
        try:
            refusal = check(known.type)
        except Exception as error:  # noqa: BLE001 - whatever foreign code raises
            self.failed(known.plugin, "check a declaration", error)
            refusal = f"plug-in '{known.plugin}' failed; the log has the reason"
        if refusal is not None:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, refusal)

    def _tell_watchers(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def _random_below(self, bound: int) -> int:
        return int.from_bytes(self._entropy(_RANDOM_BYTES), "big") % bound

    def failed(self, plugin: str, action: str, error: Exception) -> None:
        """Count a fault of a plug-in, in whatever it brings, and tell of it.   action: begins with a verb."""
        self.failures[plugin] += 1
        number = self.failures[plugin]
        if number & (number - 1) == 0:
            self._on_failure(Failure(plugin, action, error, number))
