"""The names that clients of plug-ins' protocols have claimed, each for one connection of the cluster.

    claim ─► the holder here ends ─► the other nodes are asked ─┬► no later claim: the connection has the name
                                                                └► a later one: this connection ends
Each claim has a stamp. Of two connections that claim a name at the same time on two nodes, at least one node hears of
the other's claim after its own, and both nodes prefer the later stamp: so exactly one connection keeps the name.
A connection has at most one name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from node.client.settings import BrokerSettings

Stamp: TypeAlias = tuple[int, str, int]
"""Milliseconds since 1970, the node, and the number of the connection there."""


class Claim(NamedTuple):
    """A connection's claim of a name."""

    plugin: str
    vhost: str
    name: str
    stamp: Stamp


class NamedConnection(Protocol):
    """A connection, as this module uses it.   namespace: the plug-in whose names its name is one of."""

    namespace: str
    vhost: str
    number: int

    def replaced(self) -> None:
        """End the connection: another one has its name."""


class NamesHost(Protocol):
    """The broker, as this module uses it."""

    settings: "BrokerSettings"
    now: float
    epoch_s: float


@dataclass(slots=True)
class _Holder:
    connection: NamedConnection
    stamp: Stamp


Key: TypeAlias = tuple[str, str, str]


class ClientNames:
    """The names of one node.

    elsewhere: asks the other nodes to release a name, and calls back with True if one of them has a later claim;
    None: there are no other nodes.
    """

    def __init__(self, host: NamesHost) -> None:
        self._host = host
        self._holders: dict[Key, _Holder] = {}
        self._keys: dict[NamedConnection, Key] = {}
        self.elsewhere: Callable[[Claim, Callable[[bool], None]], None] | None = None

    def __len__(self) -> int:
        return len(self._holders)

    def claim(self, connection: NamedConnection, name: str, on_done: Callable[[], None]) -> None:
        """Claim a name; `on_done` is called once the connection has it, and never if a later one takes it."""
        key = connection.namespace, connection.vhost, name
        host = self._host
        stamp = int((host.now + host.epoch_s) * 1000), host.settings.node_name, connection.number
        former = self._holders.get(key)
        if former is not None and former.connection is not connection:
            former.connection.replaced()
        self.forget(connection)
        self._holders[key] = _Holder(connection, stamp)
        self._keys[connection] = key
        if self.elsewhere is None:
            on_done()
            return

        def answered(is_older: bool) -> None:
            if self._keys.get(connection) != key:
                return  # it has ended, or was replaced, meanwhile
            if is_older:
                connection.replaced()
            else:
                on_done()

        self.elsewhere(Claim(*key, stamp), answered)

    def forget(self, connection: NamedConnection) -> None:
        """Note that a connection has ended."""
        key = self._keys.pop(connection, None)
        if key is not None:
            del self._holders[key]

    def release(self, claim: Claim) -> bool:
        """End the connection here that has the name of another node's claim; True if its own claim is later."""
        holder = self._holders.get((claim.plugin, claim.vhost, claim.name))
        if holder is None or holder.stamp == claim.stamp:
            return False  # the claim of this node itself, which asks all nodes
        if holder.stamp > claim.stamp:
            return True
        holder.connection.replaced()
        return False
