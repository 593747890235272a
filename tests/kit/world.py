"""A whole broker without sockets: time stands still until a test moves it, and random bytes repeat from run to run.

    world = World()                          client = world.client()
    client.send(1, QueueDeclare(queue="q"))  world.settle()            client.received() == [Received(1, …)]

A client here is the bytes of the wire: what it sends goes through `Connection.receive_data`, what it gets is
decoded from `take_output`. `world.settle()` is what the shell does at the end of its turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from node.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    PROTOCOL_HEADER,
    ReplyCode,
)
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, table
from node.amqp.frames import FRAME_HEADER_STRUCT, body_size, content_frames, method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    METHODS,
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from node.amqp.properties import Properties, content_header, decode_properties
from node.broker.broker import Broker
from node.catalogue.commands import Command, seed_commands
from node.catalogue.passwords import SHA256, hash_password
from node.catalogue.records import QueueRecord
from node.client.base_connection import BaseConnection
from node.client.channel import Channel
from node.client.connection import Connection
from node.client.endpoint import ClientEndpoint
from node.client.observer import Observer
from node.client.settings import BrokerSettings
from node.client.unacked import Delivery
from node.plugins.built_in import built_in
from node.queue.queue import Queue

START = 1000.0
"""The broker's clock at the start of every test."""

EPOCH_S = 1_700_000_000.0
"""The time of day at the start of every test."""

LOGIN = b"\0guest\0guest"

GUEST = tuple(
    seed_commands(
        vhost="/",
        user="guest",
        password_hash=hash_password("guest", b"salt"),
        hashing_algorithm=SHA256,
        tags=("administrator",),
        permissions=(".*", ".*", ".*"),
    )
)
"""The commands that make the vhost `/` and the user guest, who may do everything there."""


@dataclass(frozen=True)
class Received:
    """A method that a client received, with its content.   method: None for a heartbeat."""

    channel: int
    method: Method | None
    properties: Properties | None = None
    body: bytes = b""


class Diary(Observer):
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def accepted(self, connection: BaseConnection) -> None:
        self.entries.append("accepted")

    def handshake_failed(self, connection: BaseConnection, explanation: str) -> None:
        self.entries.append(f"handshake failed: {explanation}")

    def handshake_timed_out(self, connection: BaseConnection) -> None:
        self.entries.append("handshake timed out")

    def login_refused(self, connection: BaseConnection, mechanism: str, reason: str) -> None:
        self.entries.append(f"login refused: {mechanism}: {reason}")

    def named_by_client(self, connection: BaseConnection) -> None:
        self.entries.append(f"named: {connection.client_name}")

    def opened(self, connection: BaseConnection) -> None:
        self.entries.append("opened")

    def secret_updated(self, connection: BaseConnection, reason: str) -> None:
        self.entries.append(f"secret updated: {reason}")

    def connection_failed(
        self, connection: BaseConnection, channel: int, error: ProtocolError, method: str
    ) -> None:
        self.entries.append(f"connection failed: {method or '-'} on {channel}: {error.code}")

    def channel_failed(
        self, connection: BaseConnection, channel: int, error: ProtocolError, method: str
    ) -> None:
        self.entries.append(f"channel failed: {method or '-'} on {channel}: {error.code}")

    def consumer_timed_out(self, connection: BaseConnection, channel: int, consumer_tag: str) -> None:
        self.entries.append(f"consumer timed out: {consumer_tag} on {channel}")

    def heartbeats_missed(self, connection: BaseConnection) -> None:
        self.entries.append("heartbeats missed")

    def closed(self, connection: BaseConnection, *, in_good_order: bool) -> None:
        self.entries.append(f"closed {'in good order' if in_good_order else 'abruptly'}")

    def message_cycled(self, queue: QueueRecord, routing_keys: list[str]) -> None:
        self.entries.append(f"cycled: {queue.name}")

    def letters_wait(self, queue: QueueRecord, cause: str) -> None:
        self.entries.append(f"letters wait: {queue.name}, {cause}")

    def letters_fall_back(self, queue: QueueRecord) -> None:
        self.entries.append(f"letters fall back: {queue.name}")

    def letters_left(self, queue: QueueRecord) -> None:
        self.entries.append(f"letters left: {queue.name}")


class World:
    """A broker with the vhost `/` and the user guest, and its clients."""

    def __init__(self, settings: BrokerSettings | None = None) -> None:
        self.now = START
        self.diary = Diary()
        self._drawn = 0
        self.cost_s = 0.0
        """So much has been worked so far, by the clock that bounds turns; a test adds to it."""
        self.broker = Broker(
            settings or BrokerSettings(),
            entropy=self._entropy,
            epoch_s=EPOCH_S - START,
            observer=self.diary,
            clock=lambda: self.cost_s,
            load_plugin=built_in,
        )
        self.broker.start(self.now)
        self.clients: dict[BaseConnection, Client] = {}
        for command in GUEST:
            self.submit(command)

    def _entropy(self, count: int) -> bytes:
        self._drawn += 1
        return sha256(str(self._drawn).encode()).digest().ljust(count, b"\0")[:count]

    def submit(self, command: Command[object]) -> None:
        """Change the catalogue as an operator would."""
        self.broker.log.submit(command)

    def queue(self, name: str) -> Queue:
        """Return the live queue of that name in `/`."""
        return self.broker.vhosts["/"].queues[name]

    @property
    def queue_names(self) -> set[str]:
        """Return the names of all live queues of `/`."""
        return set(self.broker.vhosts["/"].queues)

    def connect(self, peer: ClientEndpoint | None = None) -> "Client":
        """Return a new client that has sent nothing yet."""
        return Client(self, peer or ClientEndpoint())

    def client(
        self,
        *channels: int,
        capabilities: Table | None = None,
        frame_max: int = 131072,
        heartbeat: int = 0,
    ) -> "Client":
        """Return a client that is logged in to `/`, with these channels open (default: 1)."""
        client = self.connect()
        client.shake_hands(capabilities=capabilities, frame_max=frame_max, heartbeat=heartbeat)
        for channel in channels or (1,):
            assert client.ask(channel, ChannelOpen()) == ChannelOpenOk()
        return client

    def settle(self) -> None:
        """Run turns until nothing is left to do, as the shell does."""
        while self.broker.has_work:
            for connection in self.broker.turn(self.now):
                if connection in self.clients:
                    self.clients[connection].flush()

    def advance(self, seconds: float) -> None:
        """Advance the time; each timer fires exactly when it is due."""
        end = self.now + seconds
        while (due := self.broker.timers.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.settle()
        self.now = end
        self.broker.tick(end)
        self.settle()


class Client:
    """The client's end of a connection.   is_reset: the socket was reset."""

    def __init__(self, world: World, peer: ClientEndpoint) -> None:
        self.world = world
        self.is_reset = False
        self.takes_output = True
        self.connection = Connection(world.broker, peer, now=world.now, on_change=lambda: None)
        world.clients[self.connection] = self
        self._raw = b""
        self._unread: list[Received] = []

    # --- sending ---

    def feed(self, data: bytes) -> None:
        """Send any bytes."""
        if not self.is_reset:
            self.connection.receive_data(data, self.world.now)

    def send(
        self, channel: int, method: Method, body: bytes | None = None, properties: Properties | None = None
    ) -> None:
        """Send a method, with its content if it has one."""
        data = method_frame(channel, method)
        if isinstance(method, BasicPublish):
            body = body or b""
            header = content_header(len(body), properties or Properties())
            data += content_frames(channel, header, body, self.connection.frame_max_bytes)
        self.feed(data)

    def publish(
        self,
        channel: int,
        routing_key: str,
        *bodies: bytes,
        exchange: str = "",
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Send one publish for each body."""
        method = BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        for body in bodies:
            self.send(channel, method, body, properties)

    # --- receiving ---

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        connection = self.connection
        if not self.takes_output:
            return
        data = b"".join(connection.take_output())
        if not self.is_reset:
            self._raw += data
        if connection.is_finished:
            self.lose()
        elif connection.is_writable:
            connection.flushed()

    def lose(self) -> None:
        """Close the socket without a word of AMQP."""
        if not self.is_reset:
            self.is_reset = True
            del self.world.clients[self.connection]
            self.connection.lost(self.world.now)

    def take_raw(self) -> bytes:
        """Return the bytes received since the last call, for a client that reads them itself."""
        self.world.settle()
        raw, self._raw = self._raw, b""
        return raw

    def received(self) -> list[Received]:
        """Return everything received since the last call."""
        self.world.settle()
        self._decode()
        unread, self._unread = self._unread, []
        return unread

    def methods(self) -> list[Method | None]:
        """Return the methods received since the last call, without channels and contents."""
        return [item.method for item in self.received()]

    def bodies(self) -> list[bytes]:
        """Return the bodies received since the last call."""
        return [item.body for item in self.received() if item.method is not None and item.method.has_content]

    def ask(self, channel: int, method: Method) -> Method | None:
        """Send a method that has exactly one answer, and return that."""
        assert self.received() == [], "unread before the question"
        self.send(channel, method)
        (answer,) = self.received()
        assert answer.channel == (0 if isinstance(answer.method, ConnectionClose) else channel)
        return answer.method

    def refusal(self, method: Method, channel: int = 1) -> tuple[int, str]:
        """Return code and text of the close that answers a method; its ids must be the method's."""
        close = self.ask(channel, method)
        assert isinstance(close, ChannelClose | ConnectionClose)
        assert isinstance(close, ChannelClose) == ReplyCode(close.reply_code).closes_channel_only
        assert (close.failed_class_id, close.failed_method_id) == (method.class_id, method.method_id)
        return close.reply_code, close.reply_text

    def _decode(self) -> None:
        raw, at, content_of = self._raw.removeprefix(PROTOCOL_HEADER), 0, None
        left = 0
        while at < len(raw):
            kind, channel, size = FRAME_HEADER_STRUCT.unpack_from(raw, at)
            payload = raw[at + 7 : at + 7 + size]
            assert raw[at + 7 + size] == FRAME_END
            limit = self.connection.frame_max_bytes
            assert not limit or size + 8 <= limit or kind == FRAME_HEADER, "a frame beyond frame_max"
            at += size + 8
            if kind == FRAME_HEARTBEAT:
                self._unread.append(Received(channel, None))
            elif kind == FRAME_HEADER:
                assert content_of is not None
                left = int.from_bytes(payload[4:12])
                properties = decode_properties(payload, 12, len(payload))
                self._unread.append(Received(channel, content_of, properties))
            elif kind == FRAME_BODY:
                last = self._unread[-1]
                assert last.channel == channel, "a content is interrupted"
                self._unread[-1] = Received(channel, last.method, last.properties, last.body + payload)
                left -= size
                assert left >= 0
            else:
                assert left == 0, "a content is interrupted"
                method = _decoded(payload)
                content_of = method if method.has_content else None
                if content_of is None:
                    self._unread.append(Received(channel, method))
        assert left == 0, "a content isn't finished"
        self._raw = b""

    # --- the handshake ---

    def shake_hands(
        self, *, capabilities: Table | None = None, frame_max: int = 131072, heartbeat: int = 0
    ) -> None:
        """Do the handshake up to an open connection."""
        self.feed(PROTOCOL_HEADER)
        (start,) = self.methods()
        assert isinstance(start, ConnectionStart)
        properties = {} if capabilities is None else {"capabilities": table(capabilities)}
        tune = self.ask(0, ConnectionStartOk(properties, "PLAIN", LOGIN))
        assert isinstance(tune, ConnectionTune)
        self.send(0, ConnectionTuneOk(tune.channel_max, frame_max, heartbeat))
        assert self.ask(0, ConnectionOpen("/")) == ConnectionOpenOk()

    def channel(self, number: int = 1) -> Channel:
        """Return the broker's side of a channel."""
        return self.connection.channels[number]


def _decoded(payload: bytes) -> Method:
    """A method. A close quotes the octets of bad frames as they are, UTF-8 or not (amqp-behaviour §1.7)."""
    kind = METHODS[int.from_bytes(payload[:2]), int.from_bytes(payload[2:4])]
    if kind in (ChannelClose, ConnectionClose):
        text, ids = payload[7:-4].decode("utf-8", "surrogateescape"), payload[-4:]
        assert payload[6] == len(payload) - 11
        return kind(int.from_bytes(payload[4:6]), text, int.from_bytes(ids[:2]), int.from_bytes(ids[2:]))
    return decode_method(payload)


def check_invariants(world: World) -> None:
    """Check the invariants between any two inputs, for every queue and every channel of the world."""
    unacked: dict[Queue, list[int]] = {}
    for connection in world.broker.connections.values():
        for channel in connection.channels.values():
            check_channel(channel, unacked)
    for vhost in world.broker.vhosts.values():
        for queue in vhost.queues.values():
            held = unacked.get(queue, [])
            pending = _in_transactions(world, queue)
            assert queue.unacked_count == len(held) + len(pending), queue.record.name
            assert queue.unacked_bytes == sum(held) + sum(pending), queue.record.name
            assert queue.backlog.count >= 0
            assert (queue.backlog.count > 0) or queue.backlog.body_bytes == 0
            assert not queue.is_deleted
            for consumer in queue.consumers.all:
                assert consumer.queue is queue


def check_channel(channel: Channel, unacked: dict[Queue, list[int]]) -> None:
    """Check that tags are unique and rising and that counts match open deliveries; collect body sizes by queue."""
    held: dict[object, int] = {}
    last_tag = count = 0
    for delivery, tags, sizes in open_deliveries(channel):
        assert tags[0] > last_tag
        last_tag = tags[-1]
        count += len(tags)
        held[delivery.consumer] = held.get(delivery.consumer, 0) + len(tags)
        unacked.setdefault(delivery.queue, []).extend(sizes)
    assert channel.unacked.count == count
    if channel.transaction is None:
        for consumer in channel.consumers.values():
            assert consumer.unacked == held.get(consumer, 0)
            assert consumer.no_ack is False or consumer.unacked == 0


def open_deliveries(channel: Channel) -> Iterator[tuple[Delivery, list[int], list[int]]]:
    """Yield each delivery with its open tags and the sizes of their bodies."""
    for delivery in channel.unacked._deliveries[channel.unacked._head :]:
        if not delivery.open:
            continue
        contents = delivery.run.contents
        tags = [delivery.first_tag + index for index, content in enumerate(contents) if content is not None]
        assert len(tags) == delivery.open
        yield delivery, tags, [body_size(content) for content in contents if content is not None]


def _in_transactions(world: World, queue: Queue) -> list[int]:
    """Return the body sizes of deliveries that a transaction settles when it commits."""
    return [
        body_size(content)
        for connection in world.broker.connections.values()
        for channel in connection.channels.values()
        if channel.transaction is not None
        for deliveries, _ in channel.transaction._settled
        for delivery in deliveries
        if delivery.queue is queue
        for content in delivery.run.contents
    ]
