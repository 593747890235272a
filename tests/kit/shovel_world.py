"""A shovel without sockets: two worlds, a host whose time moves when the test says so, and links between them."""

import heapq
from collections.abc import Callable
from itertools import count

from node.amqp import methods as m
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Event
from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri
from node.catalogue.records import Json
from node.shovels.definition import ShovelDefinition, ShovelKey, read_definition
from node.shovels.life import OnEvents, ShovelLife
from tests.kit.world import Client, World

KEY = ShovelKey("/", "s")


class WorldLink:
    """A link to a broker of a world.   world: None: there is no such host."""

    def __init__(
        self,
        host: "ShovelScene",
        uri: AmqpUri,
        name: str,
        on_events: OnEvents,
        on_writable: Callable[[], None],
    ) -> None:
        self.uri = uri
        self.core = ClientConnection(settings_of(uri, client_properties(name)))
        self.is_writable = True
        self.is_paused = False
        self.is_over = False
        self.fault = host.faults.get(uri.host or "", "econnrefused")
        is_cut = (uri.host or "") in host.faults
        self.world = None if is_cut else host.worlds.get(uri.host or "")
        self.peer: Client | None = None
        self._on_events = on_events
        self._on_writable = on_writable
        self._raw = b""

    def start(self) -> None:
        """Connect."""
        if self.world is None:
            self.core.lost(self.fault)
        else:
            self.peer = self.world.connect()

    def close(self) -> None:
        self.core.close()

    def abort(self) -> None:
        self.is_over = True
        if self.peer is not None:
            self.peer.lose()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_writable(self, is_writable: bool) -> None:
        """Say whether the socket takes bytes."""
        self.is_writable = is_writable
        if is_writable:
            self._on_writable()

    def move(self) -> bool:
        """Carry bytes both ways; False if there were none."""
        if self.is_over:
            return False
        moved = False
        sent = b"".join(self.core.take_output())
        if self.peer is not None:
            if sent:
                self.peer.feed(sent)
            self._raw += self.peer.take_raw()
            if self._raw and not self.is_paused:
                raw, self._raw = self._raw, b""
                self.core.receive_data(raw, self.world.now if self.world is not None else 0.0)
                moved = True
            if self.peer.is_reset and not self.core.is_finished and not self._raw:
                self.core.lost("socket_closed_unexpectedly")
            if self.core.is_finished:
                self.peer.lose()
        taken: list[Event] = self.core.take_events()
        if self.core.is_finished:
            self.is_over = True
        if taken:
            self._on_events(taken)
        return moved or bool(sent) or bool(taken)


class ShovelScene:
    """The hosts `a` and `b`, and a shovel from the one to the other."""

    cluster = "here"

    def __init__(self) -> None:
        self.worlds = {"a": World(), "b": World()}
        self.faults: dict[str, str] = {}
        """Hosts to which nobody can connect, with the reason; that of an unknown host is `econnrefused`."""
        self.links: list[WorldLink] = []
        self.lines: list[tuple[str, str]] = []
        self.completions: list[ShovelDefinition] = []
        self.ended: list[ShovelLife] = []
        self.now = 0.0
        self.waits: list[float] = []
        self._timers: list[tuple[float, int, list[Callable[[], None]]]] = []
        self._number = count()

    # --- ShovelHost ---

    @property
    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.now

    def random(self) -> float:
        return 0.0

    def dial(
        self, uri: AmqpUri, name: str, on_events: OnEvents, on_writable: Callable[[], None]
    ) -> WorldLink:
        link = WorldLink(self, uri, name, on_events, on_writable)
        self.links.append(link)
        return link

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        self.waits.append(seconds)
        holder = [callback]
        heapq.heappush(self._timers, (self.now + seconds, next(self._number), holder))
        return holder.clear

    def log(self, level: str, text: str) -> None:
        self.lines.append((level, text))

    def completed(self, definition: ShovelDefinition) -> None:
        self.completions.append(definition)

    # --- for tests ---

    def shovel(self, **keys: Json) -> ShovelLife:
        """Start a shovel from queue `q` of `a` to queue `r` of `b`, with other keys as they are given."""
        value: dict[str, Json] = {
            "src-uri": "amqp://a",
            "dest-uri": "amqp://b",
            "src-queue": "q",
            "dest-queue": "r",
        }
        given = {key.replace("_", "-"): found for key, found in keys.items()}
        if "dest-exchange" in given or given.get("dest-queue", "") is None:
            del value["dest-queue"]
        if "src-exchange" in given:
            del value["src-queue"]
        value |= {key: found for key, found in given.items() if found is not None}
        life = ShovelLife(read_definition(KEY, value), self, self.ended.append)
        life.start()
        self.settle()
        return life

    def settle(self) -> None:
        """Carry bytes until none are left."""
        while True:
            moved = [link.move() for link in list(self.links)]
            if not any(moved):
                return

    def advance(self, seconds: float) -> None:
        """Move the time; each timer runs when it is due."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, holder = heapq.heappop(self._timers)
            for callback in holder:
                callback()
            self.settle()
        self.now = end

    def fill(self, *bodies: bytes, queue: str = "q", world: str = "a", durable: bool = True) -> None:
        """Put messages into a queue, which is declared."""
        client = self.worlds[world].client()
        client.ask(1, m.QueueDeclare(queue=queue, durable=durable))
        client.publish(1, queue, *bodies)
        client.received()
        client.lose()

    def waiting(self, queue: str, world: str) -> list[bytes]:
        """Return the bodies of the messages that are ready in a queue, and take them."""
        client = self.worlds[world].client()
        bodies = []
        while True:
            client.send(1, m.BasicGet(queue=queue, no_ack=True))
            (got,) = client.received()
            if not isinstance(got.method, m.BasicGetOk):
                client.lose()
                return bodies
            bodies.append(got.body)

    def counts(self, queue: str, world: str) -> tuple[int, int]:
        """Return how many messages are ready and how many are unacknowledged."""
        live = self.worlds[world].queue(queue)
        return live.backlog.count, live.unacked_count
