"""Queues on other nodes as channels see them: who is asked, what is said, and what happens while an answer is due.

The other node is a stub that keeps what it was asked until a test answers; the real one is `cluster.remote`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

from node.amqp.field_table import boolean, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
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
from node.catalogue.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    NodeDown,
    NodeUp,
    PutMember,
    SetDraining,
    SetPolicy,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.client.channel import Channel
from node.client.reply_to import ENTROPY_BYTES, ReplyConsumers
from node.client.settings import BrokerSettings
from node.queue.consumer import Consumer
from node.queue.live_queue import Asked, Counts, Handoff, HeldPublisher, at_once
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from tests.kit.messages import bodies_of, run_of
from tests.kit.world import World

HERE, THERE = "here@host", "there@host"
HOME_IS_DOWN = f"NOT_FOUND - home node '{THERE}' of durable queue 'q' in vhost '/' is down or inaccessible"


@dataclass(eq=False)
class StubQueue:
    """A queue on another node: writes down what it is asked, and answers when it is told to."""

    record: QueueRecord
    settings: QueueSettings
    is_local = False
    is_durable = True
    is_plain = True
    is_congested = False
    is_out_of_reach = False
    leaves_node = True
    successor = None
    asked: list[Callable[[Any], None]] = field(default_factory=list)
    published: list[tuple[list[bytes], PendingPublish | None]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    waiting: list[HeldPublisher] = field(default_factory=list)

    def ask(self) -> Asked[Any]:
        answer = yield self.asked.append
        return answer

    def answer(self, value: Any) -> None:
        """Give the oldest question its answer."""
        self.asked.pop(0)(value)

    def publish(self, batch: Batch, waiter: PendingPublish | None) -> Collection[int]:
        self.published.append((list(batch.contents), waiter))
        return ()

    def await_relief(self, publisher: HeldPublisher) -> None:
        self.waiting.append(publisher)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        self.settings = settings

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        yield from self.ask()
        self.consumers.append(consumer)

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        self.consumers.remove(consumer)

    def resume(self, consumer: Consumer) -> None:
        self.said.append("resume")

    def limit_changed(self, consumer: Consumer) -> None:
        self.said.append("limit changed")

    def heard(self) -> Asked[None]:
        return self.ask()

    def counts(self) -> Asked[Counts]:
        return self.ask()

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        return self.ask()

    def purge(self) -> Asked[int]:
        return self.ask()

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        return self.ask()

    def delivered(self, run: Run) -> None:
        self.said.append("delivered")

    def forget(self, run: Run) -> None:
        self.said.append("forget")

    def ack(self, run: Run) -> None:
        self.said += [f"ack {body.decode()}" for body in bodies_of(run)]

    def reject(self, run: Run, now: float) -> None:
        self.said += [f"reject {body.decode()}" for body in bodies_of(run)]

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        self.said += [f"requeue {body.decode()}" for run in runs for body in bodies_of(run)]

    def hand_off(self) -> Handoff:
        return Handoff()

    def adopt(self, handoff: Handoff) -> None:
        """Take a handoff, which does not come here."""

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.channel.cancelled_by_server(consumer)


class StubPeers:
    """The other nodes."""

    is_congested = False
    has_work = False

    def __init__(self) -> None:
        self.opened: list[StubQueue] = []
        self.heard: list[str] = []

    def open(self, record: QueueRecord, settings: QueueSettings) -> StubQueue:
        self.opened.append(StubQueue(record, settings))
        return self.opened[-1]

    def node_up(self, name: str) -> None:
        self.heard.append(f"up {name}")

    def node_down(self, name: str) -> None:
        self.heard.append(f"down {name}")

    def turn(self, now: float) -> None:
        """Nothing is due."""

    def reply(self, node: str, name: str, envelope: Envelope, content: bytes) -> None:
        self.heard.append(f"reply for {node}")

    def has_requester(self, node: str, name: str) -> Asked[bool]:
        self.heard.append(f"who on {node}")
        return at_once(True)

    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        return []

    def close(self) -> None:
        """Close the queue, which has no messages out."""


class Cluster(World):
    """A broker with a second node, where the durable queue q lives, bound to the fanout exchange x."""

    def __init__(self, locator: str = "client-local") -> None:
        super().__init__(BrokerSettings(node_name=HERE, queue_master_locator=locator))
        self.broker.peers = self.peers = StubPeers()
        for name in (HERE, THERE):
            self.submit(PutMember(name, "h:1", name))
            self.submit(NodeUp(name, name, "h:1"))
        self.submit(DeclareExchange("/", "x", "fanout", durable=True))
        self.submit(DeclareQueue("/", "q", "1", durable=True, home=THERE))
        self.submit(Bind("/", "x", "queue", "q", ""))
        self.settle()

    @property
    def q(self) -> StubQueue:
        return self.peers.opened[-1]


def test_a_publish_is_confirmed_when_the_other_node_has_it() -> None:
    world = Cluster()
    client = world.client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    client.publish(1, "q", b"1", b"2", b"3")
    assert client.methods() == []
    accepted = 0
    for contents, pending in world.q.published:
        assert pending is not None
        accepted += len(contents)
        pending.accept()
    assert accepted == 3
    assert client.methods() == [BasicAck(3, multiple=True)]


def test_a_publish_to_both_nodes_waits_for_both() -> None:
    """A publish to queues on two nodes is confirmed when both have it, and nacked if one refuses it."""
    world = Cluster()
    world.submit(DeclareQueue("/", "mine", "2", home=HERE))
    world.submit(Bind("/", "x", "queue", "mine", ""))
    client = world.client()
    client.ask(1, ConfirmSelect())
    client.publish(1, "", b"1", exchange="x")
    ((contents, pending),) = world.q.published
    assert len(contents) == 1
    assert world.queue("mine").backlog.count == 1
    assert client.methods() == []
    assert pending is not None
    pending.accept([0])
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]


def test_section_9_1_publishes_in_flight_to_a_lost_node_are_nacked() -> None:
    world = Cluster()
    client = world.client()
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1")
    ((_, pending),) = world.q.published
    assert pending is not None
    pending.fail()
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]


def test_section_9_1_a_queue_whose_node_is_down() -> None:
    """404 for whatever names it; publishes to it are unroutable; it is there again when the node is."""
    world = Cluster()
    world.submit(NodeDown(THERE, 2))
    assert world.peers.heard[-1] == f"down {THERE}"
    for method in (
        QueueDeclare(queue="q", durable=True),
        QueueDeclare(queue="q", passive=True),
        BasicGet(queue="q"),
        BasicConsume(queue="q"),
        QueuePurge(queue="q"),
        QueueBind(queue="q", exchange="x"),
        QueueDelete(queue="q"),
    ):
        assert world.client().refusal(method) == (404, HOME_IS_DOWN), method
    client = world.client()
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1", mandatory=True)
    client.publish(1, "", b"2", exchange="x", mandatory=True)
    assert [type(method) for method in client.methods()] == [BasicReturn, BasicAck] * 2
    world.submit(NodeUp(THERE, THERE, "h:1"))
    assert world.peers.heard[-1] == f"up {THERE}"
    client.publish(1, "q", b"3")
    client.publish(1, "", b"4", exchange="x")
    assert len(world.q.published) == 2


def test_section_9_1_consumers_of_a_lost_node_are_cancelled() -> None:
    world = Cluster()
    client = world.client(capabilities={"consumer_cancel_notify": boolean(True)})
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    assert client.methods() == []
    world.q.answer(None)
    assert client.methods() == [BasicConsumeOk("c")]
    (consumer,) = world.q.consumers
    channel = client.connection.channels[1]
    channel.deliver(consumer, run_of(b"1", b"2"), world.now)
    assert client.bodies() == [b"1", b"2"]
    lost = world.q
    world.submit(NodeDown(THERE, 2))
    assert client.methods() == [BasicCancel("c", nowait=True)]
    client.send(1, BasicAck(2, multiple=True))
    assert client.methods() == [], "accepted in silence"
    assert "ack 1" in lost.said, "by the near end of a queue that is out of reach"


def test_questions_wait_and_the_rest_of_the_connection_with_them() -> None:
    world = Cluster()
    client = world.client()
    client.send(1, QueueDeclare(queue="q", durable=True))
    client.send(1, QueuePurge(queue="q"))
    assert len(world.q.asked) == 1
    world.q.answer(Counts(7, 2))
    assert client.methods() == [QueueDeclareOk("q", 7, 2)]
    world.q.answer(5)
    assert client.methods() == [QueuePurgeOk(5)]
    client.send(1, QueueDelete(queue="q"))
    world.q.answer(4)
    assert client.methods() == [QueueDeleteOk(4)]


def test_get_from_another_node() -> None:
    world = Cluster()
    client = world.client()
    client.send(1, BasicGet(queue="q"))
    world.q.answer((run_of(b"1"), 9))
    (received,) = client.received()
    assert received.method == BasicGetOk(1, False, "", "q", 9)
    assert received.body == b"1"
    client.send(1, BasicAck(1))
    assert world.q.said == ["ack 1"]


def test_an_answer_after_the_channel_has_gone_is_nobodys() -> None:
    world = Cluster()
    client = world.client()
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    client.lose()
    world.q.answer(None)
    assert world.q.consumers == []


def test_cancel_is_answered_when_the_home_knows() -> None:
    """A cancel is answered when the home knows it, so another client may become the exclusive consumer at once."""
    world = Cluster()
    client = world.client()
    client.send(1, BasicConsume(queue="q", consumer_tag="c"))
    world.q.answer(None)
    client.received()
    client.send(1, BasicCancel("c"))
    assert client.methods() == []
    assert len(world.q.consumers) == 1  # it may be given what was published before
    world.q.answer(None)
    assert client.methods() == []
    assert world.q.consumers == []
    world.q.answer(None)
    assert client.methods() == [BasicCancelOk("c")]


def test_what_is_unacknowledged_goes_back_when_the_channel_closes() -> None:
    """From the latest on, to where it came from."""
    world = Cluster()
    client = world.client()
    client.send(1, BasicConsume(queue="q"))
    world.q.answer(None)
    client.received()
    channel = client.connection.channels[1]
    channel.deliver(world.q.consumers[0], run_of(b"1", b"2"), world.now)
    client.received()
    client.send(1, ChannelClose(200, ""))
    assert client.methods() == []
    world.q.answer(None)
    assert client.methods() == [ChannelCloseOk()]
    assert world.q.consumers == []
    assert world.q.said[-2:] == ["requeue 1", "requeue 2"]


def test_a_transaction_commits_when_all_nodes_have_it() -> None:
    world = Cluster()
    client = world.client()
    assert client.ask(1, TxSelect()) == TxSelectOk()
    client.publish(1, "q", b"1")
    client.publish(1, "q", b"2", properties=Properties(delivery_mode=2))
    assert world.q.published == []
    client.send(1, TxCommit())
    assert client.methods() == []
    all_pending = {id(pending): pending for _, pending in world.q.published}
    (pending,) = all_pending.values()
    assert pending is not None
    pending.accept()
    assert client.methods() == []
    pending.accept()
    assert client.methods() == [TxCommitOk()]


def test_a_transaction_that_another_node_refuses_in_part() -> None:
    world = Cluster()
    client = world.client()
    client.ask(1, TxSelect())
    client.publish(1, "q", b"1")
    client.send(1, TxCommit())
    ((_, pending),) = world.q.published
    assert pending is not None
    pending.accept([0])
    (closed,) = client.methods()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_text == "PRECONDITION_FAILED - partial tx completion"


def test_a_transaction_whose_other_node_is_lost() -> None:
    """To the client it is as if the queue had refused; what stays here is committed (amqp-behaviour §4.4)."""
    world = Cluster()
    world.submit(
        DeclareQueue("/", "full", "2", home=HERE, arguments={"x-overflow": longstr("reject-publish")})
    )
    world.submit(SetPolicy("/", "full", "^full$", {"max-length": 0}))
    client = world.client()
    client.ask(1, TxSelect())
    client.publish(1, "full", b"1")
    client.publish(1, "q", b"2")
    client.send(1, TxCommit())
    ((_, pending),) = world.q.published
    assert pending is not None
    assert client.methods() == [], "all is published before anything is answered"
    pending.fail()
    (closed,) = client.methods()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_text == "PRECONDITION_FAILED - partial tx completion"


def test_a_publisher_waits_while_the_way_is_congested() -> None:
    """Nothing is read from it, which shows as flow; it goes on when the way is free (docs/internals/message.md,
    "Bounds")."""
    world = Cluster()
    client = world.client()
    world.q.is_congested = True
    client.publish(1, "q", b"1")
    world.settle()
    assert not client.connection.is_reading
    assert client.connection.throttle.state == "flow"
    assert world.q.waiting == [client.connection.throttle]
    client.publish(1, "q", b"2")
    assert len(world.q.published) == 1
    world.q.is_congested = False
    client.connection.throttle.peer_relieved()
    world.settle()
    assert client.connection.is_reading
    assert len(world.q.published) == 2


def test_dead_letters_go_to_other_nodes_and_stay_until_they_are_there() -> None:
    """If the node is lost they are routed anew (docs/internals/remote-queues.md, "When a node is lost")."""
    world = Cluster()
    world.submit(SetPolicy("/", "dlx", "^dying$", {"dead-letter-exchange": "x", "message-ttl": 0}))
    world.submit(DeclareQueue("/", "dying", "3", durable=True, home=HERE))
    client = world.client()
    client.publish(1, "dying", b"1", properties=Properties(delivery_mode=2))
    world.settle()
    ((contents, pending),) = world.q.published
    assert len(contents) == 1
    assert pending is not None
    world.submit(NodeDown(THERE, 2))
    world.submit(NodeUp(THERE, THERE, "h:1"))
    pending.fail()
    world.settle()
    ((again, pending),) = world.q.published
    assert len(again) == 1
    assert pending is not None
    pending.accept()
    world.settle()
    assert len(world.q.published) == 1


def test_section_4_12_direct_replies_find_the_requesters_node() -> None:
    """The name says which incarnation made it; a node that is down is not asked."""
    world = Cluster()
    name = ReplyConsumers().add("t", cast(Channel, None), bytes(ENTROPY_BYTES), 2).name
    client = world.client()
    client.publish(1, name, b"1")
    assert client.methods() == []
    assert world.peers.heard[-1] == f"reply for {THERE}"
    assert client.ask(1, QueueDeclare(queue=name, passive=True)) == QueueDeclareOk(name, 0, 1)
    world.submit(NodeDown(THERE, 2))
    world.peers.heard.clear()
    client.publish(1, name, b"2")
    assert client.methods() == []
    assert client.refusal(QueueDeclare(queue=name, passive=True))[0] == 404
    assert world.peers.heard == []


def homes(world: Cluster, *names: str) -> list[str]:
    found = [world.broker.catalogue.queue("/", name) for name in names]
    return [record.home for record in found if record is not None]


def test_section_9_2_where_queues_go() -> None:
    """Argument before policy before configuration before local; existing queues don't move."""
    world = Cluster()
    client = world.client()
    client.ask(1, QueueDeclare(queue="plain"))
    assert homes(world, "plain") == [HERE]
    world.submit(SetPolicy("/", "spread", "^s", {"queue-master-locator": "min-masters"}))
    for number in range(3):
        client.send(1, QueueDeclare(queue=f"s{number}"))
        if world.q.asked:
            world.q.answer(Counts(0, 0))
        client.received()
    assert sorted(homes(world, "s0", "s1", "s2")) == [HERE, HERE, THERE]
    assert homes(world, "plain") == [HERE]
    local = {"x-queue-master-locator": longstr("client-local")}
    client.ask(1, QueueDeclare(queue="s-local", arguments=local))
    assert homes(world, "s-local") == [HERE]
    client.ask(1, QueueDeclare(queue="s-mine", exclusive=True))
    assert homes(world, "s-mine") == [HERE], "exclusive queues are always local"


def test_section_9_2_by_configuration_and_without_nodes_in_maintenance() -> None:
    world = Cluster("min-masters")
    world.submit(SetDraining(HERE, True))
    client = world.client()
    for name in ("a", "b", "c"):
        client.send(1, QueueDeclare(queue=name))
        world.q.answer(Counts(0, 0))
        client.received()
    assert homes(world, "a", "b", "c") == [THERE] * 3


def test_section_9_2_random() -> None:
    world = Cluster("random")
    client = world.client()
    for number in range(20):
        client.send(1, QueueDeclare(queue=f"r{number}"))
        if world.q.asked:
            world.q.answer(Counts(0, 0))
        client.received()
    assert set(homes(world, *(f"r{number}" for number in range(20)))) == {HERE, THERE}
