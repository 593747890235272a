"""Applications of the simulation: publishers, consumers, getters. Each has one connection at a time and, when that is
lost, makes another one to any node that serves.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from node.amqp.field_table import Table, boolean, long
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ConnectionCloseOk,
    Method,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.amqp.properties import Properties
from tests.kit.world import Received
from tests.sim.mirror_ledger import Ledger, Message
from tests.sim.mirror_world import Node, SimClient, Timeline, Violation


class App:
    """One application.   session: names what has one order; another one after each break."""

    def __init__(self, world: Timeline, ledger: Ledger, name: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name
        self.random: Random = world.random
        self.client: SimClient | None = None
        self.node: Node | None = None
        self.session: object = object()
        self.is_over = False
        self.is_open = False
        """The channel is."""
        self.closes: list[str] = []
        self.nodes: frozenset[str] | None = None
        """The nodes that it may connect to; None: all."""
        self._life = 0

    def begin(self) -> None:
        """Connect, now or as soon as that can be."""
        if self.is_over or self.client is not None:
            return
        nodes = [
            node
            for node in self.world.serving
            if node.frozen_until <= self.world.now and (self.nodes is None or node.name in self.nodes)
        ]
        if not nodes:
            self.later(0.2, self.begin, always=True)
            return
        self.node = self.random.choice(nodes)
        self._life += 1
        self.session = (self.name, self._life)
        self.client = self.node.client(1)
        self.client.app = self._take
        self.client.on_lost = self._lost
        self.is_open = True
        self.opened()

    def later(self, delay: float, action: Callable[[], None], *, always: bool = False) -> None:
        """Do something later on the same channel."""
        session = self.session

        def act() -> None:
            if always or (self.session is session and self.is_open):
                action()

        self.world.after(delay, act)

    def _lost(self) -> None:
        self.client = None
        self.is_open = False
        self.session = object()
        self.broken()
        if not self.is_over:
            self.later(self.random.uniform(0.01, 0.5), self.begin, always=True)

    def _take(self, item: Received) -> None:
        method = item.method
        if self.client is None:
            return  # it is lost already
        if isinstance(method, ChannelClose):
            self.closes = [*self.closes[-2:], f"{method.reply_code} {method.reply_text}"]
            self.world.trace(f"{self.name}: channel closed: {method.reply_code} {method.reply_text}")
            if method.reply_code not in (404, 405, 403, 406):
                raise Violation(f"{self.name}: {method}")
            self.is_open = False
            self.session = object()
            assert self.client is not None
            self.client.send(1, ChannelCloseOk())
            self.broken()
            if not self.is_over:
                client = self.client

                def reopen() -> None:
                    if self.client is client and not self.is_over:
                        client.send(1, ChannelOpen())

                self.later(self.random.uniform(0.05, 1.0), reopen, always=True)
            return
        if isinstance(method, ChannelOpenOk):
            self._life += 1
            self.session = (self.name, self._life)
            self.is_open = True
            self.opened()
            return
        if isinstance(method, ConnectionClose):
            self.is_open = False
            if method.reply_code != 320:
                raise Violation(f"{self.name}: {method}")
            assert self.client is not None
            self.client.send(0, ConnectionCloseOk())
            return
        if method is not None and self.is_open:
            self.took(method, item)

    def send(self, method: Method, body: bytes | None = None, properties: Properties | None = None) -> None:
        """On the channel."""
        assert self.client is not None
        self.client.send(1, method, body, properties)

    def hang_up(self) -> None:
        """The socket breaks."""
        if self.client is not None:
            self.client.lose()
            if self.node is not None:
                self.node.busy()

    def finish(self) -> None:
        """Stop the client for good."""
        self.is_over = True
        self.hang_up()

    def opened(self) -> None:
        """Begin to work, as there is a channel."""

    def broken(self) -> None:
        """Note that the channel is gone."""

    def took(self, method: Method, item: Received) -> None:
        """Something came."""


class Publisher(App):
    """Publishes to some queues, with confirms, in transactions, or without either."""

    def __init__(
        self, world: Timeline, ledger: Ledger, name: str, queues: list[str], mode: str, pause: float
    ) -> None:
        super().__init__(world, ledger, name)
        self.queues = queues
        self.mode = mode
        self.pause = pause
        self.unconfirmed: dict[int, Message] = {}
        self.pending: list[Message] = []
        self._tag = 0
        self._index = 0
        self._is_committing = False
        self.is_quiet = False
        self.settled: set[int] = set()
        self.since: dict[int, float] = {}

    def opened(self) -> None:
        self._tag = 0
        self.unconfirmed.clear()
        self.settled.clear()
        self.pending = []
        self._is_committing = False
        if self.mode == "confirm":
            self.send(ConfirmSelect())
        elif self.mode == "tx":
            self.send(TxSelect())
        else:
            self.later(self.pause, self.publish)

    def broken(self) -> None:
        self.unconfirmed.clear()
        self.pending = []

    def publish(self) -> None:
        """Some messages, then a pause."""
        if self.is_quiet:
            return
        if not self._is_committing and len(self.unconfirmed) < 300:
            for _ in range(self.random.choice((1, 1, 1, 2, 5, 12))):
                self._one()
            if self.mode == "tx":
                self._is_committing = True
                self.send(TxCommit())
        self.later(self.random.expovariate(1 / self.pause), self.publish)

    def _one(self) -> None:
        queue = self.random.choice(self.queues)
        persistent = self.random.random() < 0.75
        size = self.random.choice((10, 10, 40, 40, 300, 900))
        priority = self.random.randint(0, 3) if "prio" in queue else 0
        message = self.ledger.publish(
            queue, self.session, self._index, persistent=persistent, size=size, priority=priority
        )
        self._index += 1
        self._tag += 1
        if self.mode == "confirm":
            self.unconfirmed[self._tag] = message
            self.since[message.id] = self.world.now
        self.pending.append(message)
        properties = Properties(
            delivery_mode=2 if persistent else 1,
            priority=priority,
            message_id=str(message.id),
            expiration="1500" if "ttl" in queue and self.random.random() < 0.3 else None,
        )
        self.send(BasicPublish(exchange="", routing_key=queue, mandatory=True), message.body, properties)

    def took(self, method: Method, item: Received) -> None:
        match method:
            case ConfirmSelectOk() | TxSelectOk():
                self.later(self.pause, self.publish)
            case BasicAck(delivery_tag=tag, multiple=multiple):
                self._settle(tag, "confirmed", multiple=multiple)
            case BasicNack(delivery_tag=tag, multiple=multiple):
                self._settle(tag, "nacked", multiple=multiple)
            case BasicReturn():
                assert item.properties is not None
                assert item.properties.message_id is not None
                message = self.ledger.messages[int(item.properties.message_id)]
                if message.body != item.body:
                    raise Violation(f"{self.name}: returned with other bytes: {message}")
                message.state = "returned"
            case TxCommitOk():
                for message in self.pending:
                    self.ledger.confirm(message, "confirmed", self.node)
                self.pending = []
                self._is_committing = False
            case _:
                raise Violation(f"{self.name}: {method}")

    def _settle(self, tag: int, state: str, *, multiple: bool) -> None:
        """Confirms come exactly once each, and never contradict each other."""
        tags = [each for each in self.unconfirmed if each <= tag] if multiple else [tag]
        for each in tags:
            message = self.unconfirmed.pop(each, None)
            if message is None:
                raise Violation(f"{self.name}: confirm of {each}, which was confirmed or never published")
            self.ledger.confirm(message, state, self.node)
        if not tags and tag > self._tag:
            raise Violation(f"{self.name}: confirm of {tag} before it was published")


class Consumer(App):
    """Consumes from one queue."""

    def __init__(
        self, world: Timeline, ledger: Ledger, name: str, queue: str, prefetch: int, way: str
    ) -> None:
        super().__init__(world, ledger, name)
        self.queue = queue
        self.prefetch = prefetch
        self.way = way
        """no_ack, ack, multiple, mixed, slow, or tx."""
        self.open_: dict[int, Message] = {}
        self._earlier: set[int] = set()
        """Open deliveries that came before the latest consume-ok count for no consumer (amqp-behaviour §4.9)."""
        self.is_consuming = False
        self.is_asking = False
        self.dies_on_failover = queue != "quorum" and self.random.random() < 0.3
        self.is_exclusive = self.random.random() < 0.1
        self._uncommitted: list[Message] = []
        self.on_delivery: Callable[[Message], None] = lambda message: None

    def opened(self) -> None:
        self.open_.clear()
        self.is_consuming = self.is_asking = False
        self._uncommitted = []
        if self.way == "tx":
            self.send(TxSelect())
        self.send(BasicQos(prefetch_count=self.prefetch))
        self.consume()

    def consume(self) -> None:
        """Ask to be given messages."""
        if self.is_asking or self.is_consuming:
            return
        self.is_asking = True
        arguments: Table = {}
        if self.dies_on_failover:
            arguments["x-cancel-on-ha-failover"] = boolean(True)
        if self.random.random() < 0.3:
            arguments["x-priority"] = long(self.random.randint(0, 2))
        self.send(
            BasicConsume(
                queue=self.queue,
                consumer_tag=f"{self.name}",
                no_ack=self.way == "no_ack",
                exclusive=self.is_exclusive,
                arguments=arguments,
            )
        )

    def broken(self) -> None:
        self.open_.clear()
        self.is_consuming = self.is_asking = False

    def took(self, method: Method, item: Received) -> None:
        match method:
            case BasicConsumeOk():
                self.is_consuming, self.is_asking = True, False
                self._earlier = set(self.open_)
            case BasicQosOk() | TxSelectOk():
                pass
            case BasicCancelOk():
                self.is_consuming = False
                self.later(self.random.uniform(0.01, 1.0), self.consume)
            case BasicCancel():
                if not self.is_consuming:
                    raise Violation(f"{self.name}: cancelled, and did not consume")
                self.is_consuming = False
                self.later(self.random.uniform(0.01, 1.0), self.consume)
            case BasicDeliver(delivery_tag=tag, redelivered=redelivered, consumer_tag=name):
                if name != self.name or not self.is_consuming:
                    raise Violation(f"{self.name}: a delivery to {name}, consuming: {self.is_consuming}")
                message = self.ledger.deliver(self.queue, item.body, self.session, redelivered=redelivered)
                self.on_delivery(message)
                if self.way == "no_ack":
                    self.ledger.consumed(message)
                    return
                self.open_[tag] = message
                self._prefetch_is_kept()
                delay = 0.02 if self.way != "slow" else 1.0
                self.later(self.random.expovariate(1 / delay), lambda: self.settle(tag))
            case TxCommitOk():
                self._uncommitted = []
            case _:
                raise Violation(f"{self.name}: {method}")

    def _prefetch_is_kept(self) -> None:
        """No master gives more than the limit, long after the one before it. It is a consumer's, not the channel's."""
        now = self.world.now
        count = len(self.open_.keys() - self._earlier)
        if self.prefetch and count > self.prefetch:
            is_calm = not self.ledger.troubles or self.ledger.troubles[-1] < now - 20.0
            if is_calm:
                raise Violation(f"{self.name}: {count} deliveries open, the limit is {self.prefetch}")

    def settle(self, tag: int) -> None:
        """Acknowledge, or what else may be done."""
        if tag not in self.open_:
            return
        roll = self.random.random()
        if self.way == "multiple" and roll < 0.5:
            for each in [each for each in self.open_ if each <= tag]:
                self.ledger.consumed(self.open_.pop(each))
            self.send(BasicAck(delivery_tag=tag, multiple=True))
        elif self.way == "mixed" and roll < 0.3:
            del self.open_[tag]
            self.send(BasicNack(delivery_tag=tag, requeue=True))
        elif self.way == "mixed" and roll < 0.4:
            message = self.open_.pop(tag)
            message.excuse = message.excuse or "rejected"
            self.send(BasicReject(delivery_tag=tag, requeue=False))
        else:
            self.ledger.consumed(self.open_.pop(tag))
            self.send(BasicAck(delivery_tag=tag))
        if self.way == "tx":
            self.send(TxCommit())

    def leave(self) -> None:
        """Cancel, and come back later."""
        if self.is_open and self.is_consuming:
            self.send(BasicCancel(consumer_tag=self.name))


class Getter(App):
    """Gets one message after the other; or it is the only one who takes from its queue, and purges it as well."""

    def __init__(self, world: Timeline, ledger: Ledger, name: str, queue: str) -> None:
        super().__init__(world, ledger, name)
        self.queue = queue
        self.asked: str = ""
        self.is_quiet = False
        self._purging: list[Message] = []

    def opened(self) -> None:
        self.asked = ""
        self.later(0.1, self.get)

    def broken(self) -> None:
        self.asked = ""
        self.ledger.excuse(self.queue, "purged") if self.queue == "purge" else None

    def get(self) -> None:
        """One message, or away with all."""
        if self.asked or self.is_quiet:
            return
        if self.queue == "purge" and self.random.random() < 0.1:
            self.asked = "purge"
            self._purging = [
                each for each in self.ledger.by_queue.get(self.queue, ()) if each.state == "confirmed"
            ]
            self.ledger.excuse(self.queue, "purged")
            self.send(QueuePurge(queue=self.queue))
            return
        no_ack = self.queue == "noack" and self.random.random() < 0.5
        self.asked = "get no_ack" if no_ack else "get"
        self.send(BasicGet(queue=self.queue, no_ack=no_ack))

    def took(self, method: Method, item: Received) -> None:
        if isinstance(method, QueuePurgeOk):
            self.ledger.excuse(self.queue, "purged")
            for each in self._purging:
                each.purged_at = self.world.now
        elif isinstance(method, BasicGetOk):
            message = self.ledger.deliver(self.queue, item.body, self.session, redelivered=method.redelivered)
            if self.asked == "get no_ack":
                self.ledger.consumed(message)
            elif self.random.random() < 0.7:
                self.ledger.consumed(message)
                self.send(BasicAck(delivery_tag=method.delivery_tag))
            else:
                self.send(BasicNack(delivery_tag=method.delivery_tag, requeue=True))
        elif not isinstance(method, BasicGetEmpty):
            raise Violation(f"{self.name}: {method}")
        self.asked = ""
        self.later(self.random.expovariate(1 / 0.1), self.get)


class Once(App):
    """Does one thing, and says what came of it."""

    def __init__(
        self, world: Timeline, ledger: Ledger, name: str, method: Method, on_answer: Callable[[Any], None]
    ) -> None:
        super().__init__(world, ledger, name)
        self.method = method
        self.on_answer = on_answer
        self.is_answered = False

    def opened(self) -> None:
        if not self.is_answered:
            self.send(self.method)

    def broken(self) -> None:
        if not self.is_answered and self.closes:
            self.is_answered = self.is_over = True
            self.on_answer(self.closes[-1])
            self.later(0.0, self.finish, always=True)

    def took(self, method: Method, item: Received) -> None:
        self.is_answered = True
        self.on_answer(method)
        self.finish()


__all__ = ["App", "Consumer", "Getter", "Once", "Publisher", "QueueDelete", "QueueDeleteOk"]
