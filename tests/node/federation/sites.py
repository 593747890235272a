"""Brokers that federate with each other, without sockets: each a `World`, in one virtual time, with the links of one.

    sites = Sites()      up, down = sites.site("up"), sites.site("down")
    down.set_upstream("u", up)      down.set_policy("^x$", "u")      sites.settle()

A link's URI is `amqp://NAME`. A site that is cut off refuses connections and has dropped those that there were.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from node.amqp.field_table import Table, boolean, longstr, table
from node.amqp.methods import BasicConsume, ExchangeDeclare, QueueBind, QueueDeclare
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Event
from node.amqp_client.phase import Phase
from node.amqp_client.settings import ClientSettings, client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.catalogue.commands import EnablePlugin, SetGlobalParameter, SetParameter, SetPolicy
from node.catalogue.events import Event as Change
from node.catalogue.records import Binding
from node.client.observer import Observer, Observers
from node.client.settings import BrokerSettings
from node.federation.life import OnEvents, Status
from node.federation.links import Links
from node.federation.plan import Federated
from node.federation.plugin import PLUGIN
from node.plugins.built_in import built_in
from node.queue.queue import Queue
from tests.kit.world import Client as WorldClient
from tests.kit.world import World


def properties(cluster: str) -> Table:
    """Return the properties of a server, new ones each time, as a test may change them."""
    capabilities = {"consumer_priorities": boolean(True), "basic.nack": boolean(True)}
    return {"capabilities": table(capabilities), "cluster_name": longstr(cluster)}


class Link:
    """A connection of a link: a `node.federation.life.Client` over the bytes of a world's client."""

    def __init__(
        self,
        sites: "Sites",
        site: "Site | None",
        vhost: str,
        on_events: OnEvents,
        name: str,
        settings: ClientSettings | None = None,
    ) -> None:
        settings = settings or ClientSettings(vhost=vhost, properties=client_properties(name))
        self.core = ClientConnection(replace(settings, heartbeat_s=0))
        self.name = name
        self.is_reading = True
        self._sites = sites
        self.site = site
        self._on_events = on_events
        self._peer: WorldClient | None = None
        self._is_closed = False

    def start(self) -> None:
        """Connect at the next turn."""
        self._sites.links.append(self)

    def close(self) -> None:
        """Close the connection at once."""
        self._is_closed = True
        if self._peer is not None:
            self.core.close()
            self._carry()
            self._peer.lose()
        if self in self._sites.links:
            self._sites.links.remove(self)

    def pause_reading(self) -> None:
        """Read nothing more."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """Read on."""
        self.is_reading = True

    def cut(self) -> None:
        """Lose the connection, as if its cable had been pulled."""
        if self._peer is not None:
            self._peer.lose()

    def _carry(self) -> bool:
        sent = b"".join(self.core.take_output())
        assert self._peer is not None
        if sent:
            self._peer.feed(sent)
        received = self._peer.take_raw() if self.is_reading else b""
        if received:
            self.core.receive_data(received, self._sites.now)
        if self._peer.is_reset and self.core.phase is not Phase.CLOSED:
            self.core.lost("socket_closed_unexpectedly")
        return bool(sent or received)

    def turn(self) -> bool:
        """Carry bytes, and tell the link what happened; True if anything did."""
        if self._is_closed:
            return False
        if self._peer is None:
            if self.site is None or self.site.is_cut:
                self.core.phase = Phase.CONNECTING
                self.core.lost(self.site.fault if self.site is not None else "nxdomain")
            else:
                self._peer = self.site.world.connect()
        has_moved = self._peer is not None and self._carry()
        events: Sequence[Event] = self.core.take_events()
        if events:
            self._on_events(events)
        return has_moved or bool(events)


class Sites:
    """Several brokers and their links, in one time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.links: list[Link] = []
        self.by_name: dict[str, Site] = {}
        self._timers: list[tuple[float, int, Callable[[], None], list[bool]]] = []
        self._numbers = count()

    def site(self, name: str, *, has_plugin: bool = True) -> "Site":
        """Return a new broker, whose cluster has this name."""
        site = self.by_name[name] = Site(self, name, has_plugin=has_plugin)
        return site

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back in so many seconds. Returns: a function that cancels it."""
        is_cancelled = [False]
        heappush(self._timers, (self.now + seconds, next(self._numbers), callback, is_cancelled))

        def cancel() -> None:
            is_cancelled[0] = True

        return cancel

    def settle(self) -> None:
        """Carry everything until nothing moves."""
        has_moved = True
        while has_moved:
            has_moved = False
            for site in self.by_name.values():
                site.world.settle()
                has_moved = site.follow() or has_moved
            for link in list(self.links):
                has_moved = link.turn() or has_moved

    def advance(self, seconds: float) -> None:
        """Advance the time, and settle at each timer."""
        self.settle()
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            at, _, callback, is_cancelled = heappop(self._timers)
            if not is_cancelled[0]:
                self._move_to(at)
                callback()
                self.settle()
        self._move_to(end)
        self.settle()

    def _move_to(self, now: float) -> None:
        for site in self.by_name.values():
            site.world.advance(max(now - self.now, 0.0))
        self.now = max(now, self.now)


class _Watch(Observer):
    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes

    def changed(self, change: Change) -> None:
        self._changes.append(change)


class Site:
    """A broker with its links: a `LinksHost`."""

    def __init__(self, sites: Sites, name: str, *, has_plugin: bool) -> None:
        self.sites = sites
        self.name = name
        self.is_cut = False
        self.fault = "econnrefused"
        """The reason for which nobody can connect while it is cut off."""
        self.wall_shift_s = 0.0
        """The seconds by which its clock is ahead of the others."""
        self.lines: list[str] = []
        self.changes: list[Change] = []
        self._flows: list[Callable[[bool], None]] = []
        settings = BrokerSettings(server_properties=properties(name))
        self.world = world = World(settings)
        world.broker.exchange_types._load = lambda plugin: (
            PLUGIN if plugin == PLUGIN.name else built_in(plugin)
        )
        world.submit(SetGlobalParameter("cluster_name", name))
        if has_plugin:
            types = tuple(each.name for each in PLUGIN.exchange_types)
            world.submit(EnablePlugin(PLUGIN.name, types))
        self.links = Links(world.broker.catalogue, self)
        world.broker.observer = Observers(world.broker.observer, _Watch(self.changes))
        self.client = world.client()

    # --- what operators and clients do ---

    def set_upstream(self, name: str, site: "Site | str", **more: Any) -> None:
        """Set an upstream; `max_hops=2` is its key `max-hops`."""
        uri = site if isinstance(site, str) else f"amqp://{site.name}"
        value = {"uri": uri, **{key.replace("_", "-"): each for key, each in more.items()}}
        self.world.submit(SetParameter("/", "federation-upstream", name, value))

    def set_policy(self, pattern: str, upstream: str, *, name: str = "fed") -> None:
        """Federate what matches, with one upstream or, for `all`, with all."""
        key = "federation-upstream-set" if upstream == "all" else "federation-upstream"
        self.world.submit(SetPolicy("/", name, pattern, {key: upstream}, 0, "all"))

    def exchange(self, name: str, kind: str = "topic", **more: Any) -> None:
        """Declare an exchange."""
        self.client.ask(1, ExchangeDeclare(exchange=name, type=kind, durable=True, **more))

    def queue(self, name: str, *keys: str, exchange: str = "", arguments: Table | None = None) -> None:
        """Declare a queue, bound to an exchange with these keys."""
        self.client.ask(1, QueueDeclare(queue=name, durable=True, arguments=arguments or {}))
        for key in keys:
            self.client.ask(1, QueueBind(queue=name, exchange=exchange, routing_key=key))

    def consume(self, queue: str, tag: str = "c", **more: Any) -> WorldClient:
        """Consume on a connection of its own, without acknowledgements unless said otherwise."""
        client = self.world.client()
        client.send(1, BasicConsume(queue=queue, consumer_tag=tag, **{"no_ack": True, **more}))
        return client

    def count(self, queue: str) -> int:
        """Return how many messages are ready in a queue."""
        return self.world.queue(queue).backlog.count

    @property
    def statuses(self) -> list[Status]:
        """The states of the links here."""
        return [life.status for life in self.links]

    def cut_links(self) -> None:
        """Pull the cables of all links to this site."""
        for link in list(self.sites.links):
            if link.site is self and not link.name:
                link.cut()

    def hold_links(self, *, is_held: bool) -> None:
        """Tell the links that run here that this broker takes nothing, or takes messages again."""
        self._flows[-1](not is_held)

    def follow(self) -> bool:
        """Tell the links what has changed; True if anything has."""
        changes, self.changes[:] = list(self.changes), []
        for change in changes:
            self.links.changed(change)
        return bool(changes)

    # --- LinksHost ---

    @property
    def node(self) -> str:
        return self.world.broker.settings.node_name

    @property
    def now(self) -> float:
        return self.sites.now

    @property
    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.sites.now + self.wall_shift_s

    @property
    def cluster(self) -> str:
        return str(self.world.broker.catalogue.global_parameter("cluster_name"))

    def random(self) -> float:
        return 0.0

    def dial_local(self, vhost: str, name: str, on_events: OnEvents, on_flow: Callable[[bool], None]) -> Link:
        self._flows.append(on_flow)
        return Link(self.sites, self, vhost, on_events, "<local>")

    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents) -> Link:
        site, settings = self.sites.by_name.get(uri.host or ""), settings_of(uri, client_properties(""))
        return Link(self.sites, site, uri.vhost, on_events, "", settings)

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return self.sites.after(seconds, callback)

    def bindings(self, of: Federated) -> Collection[Binding]:
        return tuple(self.world.broker.catalogue.bindings_from(of.vhost, of.name))

    def is_hungry(self, of: Federated) -> bool:
        queue = self.world.broker.vhosts[of.vhost].queues.get(of.name)
        if not isinstance(queue, Queue) or queue.backlog.count:
            return False
        highest = queue.consumers.highest_waiting
        return highest is not None and highest >= 0

    def watch(self, of: Federated, *, is_watched: bool) -> None:
        watches = self.world.broker.queue_watches
        if is_watched:
            watches[of.vhost, of.name] = lambda: self.links.consumers_changed(of)
        else:
            watches.pop((of.vhost, of.name), None)

    def log(self, text: str, *, is_warning: bool) -> None:
        self.lines.append(text)
