"""Clients that do anything at all with a node whose disk answers when it likes and whose power goes off.

Everything is drawn from one seed, so a seed is a whole story that can be told again. What must be true at any time
is in `tests.durable_world.model`.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

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
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue.commands import ClearPolicy, SetPolicy
from node.store.findings import Damage
from node.store.recovery import RecoveredStore
from tests.durable_world.model import (
    ARGUMENTS,
    DEAD,
    DROPPING,
    MOVING,
    PURGEABLE,
    RETRY_MAX_MS,
    SIZES,
    Channel,
    Message,
    head_of,
    number_of,
)
from tests.durable_world.world import DurableWorld
from tests.kit.pager import EagerPager
from tests.kit.world import Client, Received, check_invariants


class Story:
    """One seed's story.   starts, messages, looked_for: how many there were of each; sure messages, each start."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pager = EagerPager()
        self.world = DurableWorld(pager=self.pager)
        self.messages: dict[int, Message] = {}
        self.clients: dict[Client, list[Channel]] = {}
        self.starts = self.looked_for = 0
        self._keys = 0
        self._absent: dict[str, list[Message]] = {}
        """Queues that may be deleted just now, with what certainly had come to them before."""
        self._declare_all()

    def tell(self, turns: int) -> None:
        """Turns, with ends of the node in between."""
        for _ in range(turns):
            self._turn()
            if self.random.random() < 0.03:
                self._end_node()
        self._end_node()
        self._drain()

    # --- a turn ---

    def _turn(self) -> None:
        random = self.random
        for _ in range(random.choice((1, 1, 2, 4))):
            self._act()
        if random.random() < 0.5:
            self.world.broker.sample_memory(1)
            self.pager.keep_bytes = random.choice((0, 0, 100, 1000))
        if random.random() < 0.8:
            self.world.settle()
        for _ in range(random.choice((0, 1, 2, 5, 20, 100))):
            if not (self.world.disk.execute() if random.random() < 0.3 else self.world.disk.step()):
                break
            if random.random() < 0.3:
                self.world.settle()
        if random.random() < 0.15:
            self.world.advance(random.choice((0.001, 0.03, 1, 5)))
        self._hear()
        if random.random() < 0.2:
            self.world.settle()
            check_invariants(self.world)

    def _act(self) -> None:
        if not self.clients or (len(self.clients) < 3 and self.random.random() < 0.2):
            self._connect()
            return
        client = self.random.choice(list(self.clients))
        channel = self.random.choice(self.clients[client])
        if channel.is_closed:
            self._lose(client)
            return
        acts = {
            self._publish: 40,
            self._consume: 6,
            self._get: 8,
            self._settle: 25,
            self._commit: 8 if channel.kind == "tx" else 0,
            self._cancel: 3,
            self._purge: 1,
            self._recover: 1,
            self._close_channel: 1,
            self._redeclare: 1,
            self._policy: 1,
        }
        if self.random.random() < 0.01:
            self._lose(client)
            return
        act = self.random.choices(list(acts), list(acts.values()))[0]
        act(client, channel)

    def _connect(self) -> None:
        client = self.world.client(1, 2)
        channels = []
        for number in (1, 2):
            kind = self.random.choice(("plain", "confirm", "confirm", "tx"))
            if kind == "confirm":
                client.ask(number, ConfirmSelect())
            elif kind == "tx":
                client.ask(number, TxSelect())
            self._keys += 1
            channels.append(Channel(self._keys, number, kind))
        self.clients[client] = channels

    # --- what clients do ---

    def _publish(self, client: Client, channel: Channel) -> None:
        random = self.random
        queue = random.choice([name for name in ARGUMENTS if name != DEAD])
        for _ in range(random.choice((1, 1, 3, 10))):
            number = len(self.messages) + 1
            head = head_of(number)
            message = Message(
                number,
                queue,
                channel.key,
                head + bytes([97 + number % 26]) * random.choice(SIZES),
                random.random() < 0.8,
                random.randrange(5) if queue == "priority" else 0,
            )
            self.messages[number] = message
            # What is sent later by one client may be done earlier than what another one had sent.
            message.is_settled = queue in self._absent or self._is_purged(queue)
            if channel.kind == "confirm":
                channel.published[channel.next_publish] = message
                channel.next_publish += 1
            elif channel.kind == "tx":
                channel.uncommitted.append(message)
            properties = Properties(
                delivery_mode=2 if message.persistent else 1, priority=message.priority or None
            )
            client.publish(channel.number, queue, message.body, properties=properties)

    def _consume(self, client: Client, channel: Channel) -> None:
        if len(channel.consumers) >= 2:
            return
        queue = self.random.choice(list(ARGUMENTS))
        self._keys += 1
        tag = f"c{self._keys}"
        no_ack = self.random.random() < 0.15
        prefetch = self.random.choice((1, 3, 20))
        client.send(channel.number, BasicQos(0, prefetch, False))
        client.send(channel.number, BasicConsume(queue=queue, consumer_tag=tag, no_ack=no_ack))
        channel.consumers[tag] = queue
        if no_ack:
            channel.no_ack.add(tag)

    def _cancel(self, client: Client, channel: Channel) -> None:
        if channel.consumers:
            client.send(channel.number, BasicCancel(self.random.choice(list(channel.consumers))))

    def _get(self, client: Client, channel: Channel) -> None:
        for _ in range(self.random.choice((1, 1, 5))):
            queue = self.random.choice(list(ARGUMENTS))
            no_ack = self.random.random() < 0.2
            channel.gets.append((queue, no_ack))
            client.send(channel.number, BasicGet(queue=queue, no_ack=no_ack))

    def _settle(self, client: Client, channel: Channel) -> None:
        if not channel.unacked or channel.is_recovering:
            return
        tags = sorted(channel.unacked)
        how = self.random.choices(("ack", "reject", "requeue"), (6, 2, 2))[0]
        is_multiple = self.random.random() < 0.5
        tag = self.random.choice(tags)
        chosen = [each for each in tags if each <= tag] if is_multiple else [tag]
        for each in chosen:
            message, queue = channel.unacked.pop(each)
            if channel.kind == "tx":
                channel.settled.append((each, message, queue, how))
            else:
                self._done(message, queue, how)
        if how == "ack":
            client.send(channel.number, BasicAck(tag, is_multiple))
        else:
            client.send(channel.number, BasicNack(tag, is_multiple, requeue=how == "requeue"))

    def _done(self, message: Message, queue: str, how: str) -> None:
        """A client has sent that it is done with a message in a queue."""
        if how == "reject" and "x-dead-letter-exchange" in ARGUMENTS[queue]:
            message.may_be_dead = True
        elif how != "requeue":
            message.is_settled = True

    def _commit(self, client: Client, channel: Channel) -> None:
        if self.random.random() < 0.2:
            client.send(channel.number, TxRollback())
            self._roll_back(channel)
            for tag, message, queue, _ in channel.settled:
                channel.unacked[tag] = (message, queue)
            channel.settled.clear()
            return
        for _, message, queue, how in channel.settled:
            self._done(message, queue, how)
        channel.settled.clear()
        channel.committing.append(channel.uncommitted)
        channel.uncommitted = []
        client.send(channel.number, TxCommit())

    def _roll_back(self, channel: Channel) -> None:
        for message in channel.uncommitted:
            message.is_refused = True
        channel.uncommitted.clear()

    def _purge(self, client: Client, channel: Channel) -> None:
        queue = self.random.choice(PURGEABLE)
        for message in self.messages.values():
            if message.queue == queue:
                message.is_settled = True
        channel.purges.append(queue)
        client.send(channel.number, QueuePurge(queue=queue))

    def _is_purged(self, queue: str) -> bool:
        """Whether a purge of the queue may be on its way."""
        return any(queue in channel.purges for channels in self.clients.values() for channel in channels)

    def _recover(self, client: Client, channel: Channel) -> None:
        if channel.kind != "tx":
            channel.is_recovering = True
            client.send(channel.number, BasicRecover(requeue=True))

    def _close_channel(self, client: Client, channel: Channel) -> None:
        client.send(channel.number, ChannelClose(200, "", 0, 0))
        channel.is_closed = True
        self._roll_back(channel)

    def _redeclare(self, client: Client, channel: Channel) -> None:
        queue = self.random.choice(PURGEABLE)
        for message in self.messages.values():
            if message.queue == queue:
                message.is_settled = True
        if queue in self._absent:
            return
        self._absent[queue] = [
            message for message in self.messages.values() if message.queue == queue and message.is_sure
        ]
        client.send(channel.number, QueueDelete(queue=queue))
        client.send(channel.number, self._declaration(queue))

    def _policy(self, client: Client, channel: Channel) -> None:
        if self.random.random() < 0.5:
            self.world.submit(SetPolicy("/", "lazy", "^plain|^dying", {"queue-mode": "lazy"}))
        else:
            self.world.submit(ClearPolicy("/", "lazy"))

    def _lose(self, client: Client) -> None:
        self._hear_one(client)
        for channel in self.clients.pop(client):
            self._roll_back(channel)
        client.lose()

    # --- what clients hear ---

    def _hear(self) -> None:
        for client in list(self.clients):
            self._hear_one(client)

    def _hear_one(self, client: Client) -> None:
        channels = {channel.number: channel for channel in self.clients[client]}
        for item in client.received():
            assert not isinstance(item.method, ConnectionClose), item
            channel = channels[item.channel]
            self._heard(channel, item)
        if client.is_reset:
            del self.clients[client]

    def _heard(self, channel: Channel, item: Received) -> None:
        method = item.method
        match method:
            case BasicDeliver():
                queue = channel.consumers[method.consumer_tag]
                is_auto = method.consumer_tag in channel.no_ack
                self._got(channel, queue, item.body, method.delivery_tag, is_auto, method.redelivered)
            case BasicGetOk():
                queue, is_auto = channel.gets.pop(0)
                self._got(channel, queue, item.body, method.delivery_tag, is_auto, method.redelivered)
            case BasicGetEmpty():
                channel.gets.pop(0)
            case BasicAck(tag, multiple) | BasicNack(tag, multiple):
                self._confirmed(channel, tag, multiple, isinstance(method, BasicAck))
            case BasicCancelOk(tag):
                channel.consumers.pop(tag, None)
            case TxCommitOk():
                for message in channel.committing.pop(0):
                    message.is_sure = True
            case QueuePurgeOk():
                channel.purges.pop(0)
            case BasicRecoverOk():
                channel.unacked.clear()
                channel.is_recovering = False
            case QueueDeclareOk(queue) if queue in self._absent:
                self._redeclared(queue)
            case ChannelClose(404, text):
                assert any(f"'{queue}'" in text for queue in PURGEABLE), text
                channel.is_closed = True
            case ChannelClose(406, text):
                assert text.endswith("partial tx completion"), text
                channel.is_closed = True
            case _:
                assert isinstance(
                    method,
                    BasicConsumeOk
                    | BasicQosOk
                    | QueueDeclareOk
                    | QueueDeleteOk
                    | TxRollbackOk
                    | ChannelCloseOk,
                ), method

    def _redeclared(self, queue: str) -> None:
        """Note that the queue is a new one: nothing of the old one is in it."""
        for message in self._absent.pop(queue):
            message.is_out = True

    def _confirmed(self, channel: Channel, tag: int, is_multiple: bool, is_ack: bool) -> None:
        tags = [each for each in channel.published if each <= tag] if is_multiple else [tag]
        assert tags
        for each in tags:
            message = channel.published.pop(each)
            if is_ack:
                message.is_sure = True
            else:
                assert message.queue == "small"
                message.is_refused = True

    def _got(
        self, channel: Channel, queue: str, body: bytes, tag: int, is_auto: bool, is_redelivered: bool
    ) -> None:
        # What a deleted queue had delivered may be heard of only now.
        message = self._checked(queue, body, may_be_out=queue in PURGEABLE)
        if not is_redelivered and queue != DEAD:
            # (What one client got may be heard of before what another one had got earlier.)
            assert queue not in message.fresh_in, f"{message} again, and not redelivered"
            message.fresh_in.add(queue)
            key = (message.publisher, queue, min(message.priority, 3))
            assert channel.last.get(key, 0) < message.number, f"{message} was overtaken"
            channel.last[key] = message.number
        message.seen_in.add(queue)
        if is_auto:
            self._done(message, queue, "ack")
        else:
            channel.unacked[tag] = (message, queue)

    def _checked(self, queue: str, body: bytes, *, may_be_out: bool = False) -> Message:
        """The message that came from a queue; it must be what was published there."""
        message = self.messages[number_of(body)]
        assert message.body == body, message
        if queue == DEAD:
            assert message.may_be_dead or message.queue in DROPPING, f"{message} is no dead letter"
        else:
            assert message.queue == queue, message
        assert not message.is_refused, message
        assert may_be_out or not message.is_out, f"{message} is a ghost in {queue}"
        return message

    # --- the end of the node ---

    def _end_node(self) -> None:
        random, world = self.random, self.world
        self._hear()
        how = random.choice(("kill", "power", "stop"))
        if how == "stop":
            self._stop()
        elif how == "kill":
            world.kill(random)
        else:
            world.cut_power(random)
        for channels in self.clients.values():
            for channel in channels:
                self._roll_back(channel)
        self.clients.clear()
        self._absent.clear()
        world.pager = self.pager = EagerPager()
        found = world.start(down_s=random.choice((0, 5)))
        assert found.was_clean or how != "stop"
        self._check_findings(found, how)
        assert not world.reported, world.reported
        self.starts += 1
        if random.random() < 0.3:
            self.world.rest()
        self._look(how)

    def _check_findings(self, found: RecoveredStore, how: str) -> None:
        """A clean stop leaves nothing to be found, a crash only what nobody was promised."""
        harmless = {"stop": (), "kill": (Damage.TORN,), "power": (Damage.TORN, Damage.MISSING)}[how]
        if not self.world.metadata.is_whole:
            harmless += (Damage.UNKNOWN,)  # of a queue that was being deleted
        assert all(finding.damage in harmless for finding in found.findings), found.findings

    def _stop(self) -> None:
        """Stop in good order; clients hear what there is to hear until then."""
        clients = dict(self.clients)
        self.world.broker.close_connections("shutdown")
        self.world.settle()
        for client, channels in clients.items():
            by_number = {channel.number: channel for channel in channels}
            for item in client.received():
                if not isinstance(item.method, ConnectionClose):
                    self._heard(by_number[item.channel], item)
        self.world.stop()

    def _look(self, how: str) -> None:
        """All that is there after a start, and all that must be."""
        world = self.world
        client = world.client()
        world.rest()
        self._await_retries()
        present: dict[str, list[Message]] = {}
        for name in ARGUMENTS:
            if name == "transient":
                assert name not in world.queue_names
                continue
            if name in PURGEABLE and name not in world.queue_names:
                continue  # a crash between its delete and its declare
            present[name] = self._look_into(client, name, how)
        client.lose()
        self.world.rest()
        check_invariants(world)
        self._compare(present)
        self._declare_all()

    def _await_retries(self) -> None:
        """Have all that waits to be retried come back; a backlog that is on disk comes by it only as it is read."""
        world = self.world
        while True:
            world.advance(RETRY_MAX_MS / 1000 + 0.1)
            world.rest()
            if not any(queue.retries is not None and queue.retries.count for queue in world.queues()):
                return

    def _look_into(self, client: Client, name: str, how: str) -> list[Message]:
        queue = self.world.queue(name)
        count, body_bytes = queue.backlog.count, queue.backlog.body_bytes
        items = self.world.get_all(client, name)
        found = [self._checked(name, item.body) for item in items]
        if name not in DROPPING and name != DEAD:
            assert (count, body_bytes) == (len(found), sum(len(message.body) for message in found)), name
        for message, item in zip(found, items, strict=True):
            assert message.persistent, f"{message} is transient"
            assert isinstance(item.method, BasicGetOk)
            if name == DEAD:
                continue  # it may be there several times
            if how == "stop":
                assert item.method.redelivered == (name in message.seen_in), f"{message} in {name}"
            else:
                assert item.method.redelivered, message
            message.seen_in.add(name)
            message.fresh_in.add(name)
        if name in MOVING:
            assert how != "stop" or len(set(found)) == len(found), "twice"
        elif name != DEAD:
            self._check_sorted(found)
            assert max(Counter(found).values(), default=1) == 1, "twice"
        return found

    def _check_sorted(self, found: Sequence[Message]) -> None:
        """By priority, then by number for each publisher."""
        assert [-min(message.priority, 3) for message in found] == sorted(
            -min(message.priority, 3) for message in found
        )
        last: dict[tuple[int, int], int] = {}
        for message in found:
            key = (message.publisher, min(message.priority, 3))
            assert last.get(key, 0) < message.number, f"{message} is out of order"
            last[key] = message.number

    def _compare(self, present: dict[str, list[Message]]) -> None:
        there = {message for messages in present.values() for message in messages}
        for message in self.messages.values():
            if message.is_out:
                continue
            if (
                message.is_sure
                and message.persistent
                and not message.is_settled
                and message.queue != "transient"
            ):
                self.looked_for += 1
                assert message in there, f"{message} is lost"
            if message in there:
                message.is_sure = True
                message.is_settled = False
            else:
                message.is_out = True

    def _drain(self) -> None:
        """At the very end all of it is consumed, and nothing is left on disk."""
        client = self.world.client()
        for name in ARGUMENTS:
            client.send(1, BasicConsume(queue=name, no_ack=True, nowait=True))
        self.world.rest()
        self._await_retries()
        client.received()
        self.world.rest()
        assert [queue.backlog.count for queue in self.world.queues()] == [0] * len(ARGUMENTS)
        paths = self.world.disk.paths()
        assert not [path for path in paths if path.startswith(("queues/", "transient/queues/"))], paths
        for store in (self.world.store.persistent, self.world.store.transient):
            assert store.figures().messages == 0

    # --- queues ---

    def _declaration(self, name: str) -> QueueDeclare:
        return QueueDeclare(queue=name, durable=name != "transient", arguments=ARGUMENTS[name])

    def _declare_all(self) -> None:
        client = self.world.client()
        for name in ARGUMENTS:
            client.send(1, self._declaration(name))
        self.world.rest()
        assert all(isinstance(method, QueueDeclareOk) for method in client.methods())
        client.lose()
