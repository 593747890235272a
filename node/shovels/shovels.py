"""The shovels that this node runs: they follow the catalogue, event by event.

    a parameter `shovel` was set or cleared ─┐
    a node came or went                      ─┴─► shovels.changed(event) ─► some shovels start, change or end

A shovel runs on the node with the highest hash of node and shovel among those that are up: they are spread evenly,
and only those of a lost node move. All nodes come to the same result, so nothing is agreed on, and no two nodes run a
shovel for longer than they differ about the catalogue; both then share the messages of its queue.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Protocol

from node.catalogue import events
from node.catalogue.records import ClusterMember, Json, Vhost
from node.catalogue.shovel_parameters import SHOVEL
from node.definitions.tables import TableInvalid
from node.shovels.definition import ShovelDefinition, ShovelKey, read_definition
from node.shovels.life import ShovelHost, ShovelLife
from node.shovels.session import Counters


class Facts(Protocol):
    """The catalogue, as this module reads it."""

    @property
    def members(self) -> Mapping[str, ClusterMember]:
        """The nodes of the cluster; none on a node without a cluster."""

    def vhosts(self) -> Iterable[Vhost]:
        """Return all vhosts."""

    def parameters(self, vhost: str) -> Mapping[tuple[str, str], Json]:
        """Return the parameters of a vhost by component and name."""


def owner_of(members: Mapping[str, ClusterMember], key: ShovelKey, here: str) -> str | None:
    """Return the node that runs a shovel; None: no node can.   here: the name of this node."""
    if not members:
        return here
    able = [each for each in members.values() if each.is_up and each.type != "witness"]
    willing = [each.name for each in able if not each.is_draining] or [each.name for each in able]
    shovel = f"{key.vhost}\0{key.name}".encode("utf-8", "surrogateescape")
    return max(willing, key=lambda name: (_hash(name, shovel), name), default=None)


def _hash(node: str, shovel: bytes) -> bytes:
    return blake2b(shovel, key=node.encode()[:64], digest_size=8).digest()


class ShovelsHost(ShovelHost, Protocol):
    """The node, as its shovels use it."""

    @property
    def node(self) -> str:
        """The name of this node."""


class Shovels:
    """The shovels of one node, from `begin` to `stop`.   static: those of the configuration file."""

    def __init__(self, facts: Facts, host: ShovelsHost, static: Iterable[ShovelDefinition] = ()) -> None:
        self._facts = facts
        self._host = host
        self._static = {definition.key: definition for definition in static}
        self._lives: dict[ShovelKey, ShovelLife] = {}
        self._leaving: set[ShovelLife] = set()
        """Shovels that end: what is under way is confirmed first. Their successors wait for that."""
        self._ended_counters = Counters()
        """The sums of shovels that have ended."""
        self._is_stopped = False

    def __iter__(self) -> Iterator[ShovelLife]:
        yield from self._lives.values()

    def find(self, key: ShovelKey) -> ShovelLife | None:
        """Return a shovel; None: it does not run here."""
        return self._lives.get(key)

    def totals(self) -> Counters:
        """Return the sums of all shovels that have run here."""
        totals = Counters()
        totals.add(self._ended_counters)
        for life in (*self._lives.values(), *self._leaving):
            totals.add(life.counters)
        return totals

    @property
    def is_idle(self) -> bool:
        """True if no shovel runs, and none is ending."""
        return not self._lives and not self._leaving

    def begin(self) -> None:
        """Start the shovels that are to run here."""
        for key in self._static:
            self._renew(key)
        for vhost in self._facts.vhosts():
            self._renew_all(vhost.name)

    def stop(self) -> None:
        """End all shovels."""
        self._is_stopped = True
        for key in list(self._lives):
            self._end(key)

    def changed(self, event: events.Event) -> None:
        """Follow a change of the catalogue."""
        match event:
            case events.ParameterChanged(str(vhost), component, name) if component == SHOVEL:
                self._renew(ShovelKey(vhost, name))
            case events.MemberUp() | events.MemberDown() | events.MemberPut() | events.MemberRemoved():
                for key in self._static:
                    self._renew(key)
                for each in self._facts.vhosts():
                    self._renew_all(each.name)
            case events.VhostDeleted(name):
                for key in [each for each in self._lives if each.vhost == name]:
                    self._end(key)

    def _renew_all(self, vhost: str) -> None:
        for component, name in list(self._facts.parameters(vhost)):
            if component == SHOVEL:
                self._renew(ShovelKey(vhost, name))

    def _renew(self, key: ShovelKey) -> None:
        """Start, change or end a shovel, as it should be."""
        if self._is_stopped:
            return
        wanted = self._wanted(key)
        if wanted is not None and owner_of(self._facts.members, key, self._host.node) != self._host.node:
            wanted = None
        life = self._lives.get(key)
        if life is not None and life.definition == wanted:
            return
        if life is not None:
            self._end(key)
        elif wanted is not None and not self._is_leaving(key):
            self._start(wanted)

    def _wanted(self, key: ShovelKey) -> ShovelDefinition | None:
        if not key.vhost:
            return self._static.get(key)
        value = self._facts.parameters(key.vhost).get((SHOVEL, key.name))
        if value is None:
            return None
        try:
            return read_definition(key, value)
        except TableInvalid as invalid:
            self._host.log("error", f"Shovel {key.shown} cannot have its arguments: {invalid}")
            return None

    def _is_leaving(self, key: ShovelKey) -> bool:
        return any(life.definition.key == key for life in self._leaving)

    def _start(self, definition: ShovelDefinition) -> None:
        life = ShovelLife(definition, self._host, self._ended)
        self._lives[definition.key] = life
        life.start()

    def _end(self, key: ShovelKey) -> None:
        life = self._lives.pop(key)
        self._leaving.add(life)
        life.stop()

    def _ended(self, life: ShovelLife) -> None:
        """Forget a shovel that has ended, and begin what has come in its place meanwhile."""
        self._leaving.discard(life)
        self._ended_counters.add(life.counters)
        key = life.definition.key
        if key not in self._lives:
            self._renew(key)
