"""A closed channel gives back its messages, consumers and queues by turns."""

import pytest

from node.amqp.methods import (
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
)
from node.broker.unsettled import unsettled
from node.queue.consumer import Consumers
from node.queue.live_queue import LiveQueue
from node.queue.queue import Queue
from node.queue.run import Run
from node.scheduling.chores import CHORES_S
from tests.kit.world import Client, World

COUNT = 500
MARGIN_S = 0.006
"""A turn may cost this much more: a piece of 50 deliveries at 0.1 ms."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker where each consumer that leaves and each run that is requeued costs 0.1 ms."""
    world = World()
    removed, requeued = Consumers.remove, Queue.requeue

    def remove(self: Consumers, consumer: object) -> None:
        world.cost_s += 0.0001
        removed(self, consumer)  # type: ignore[arg-type]

    def requeue(self: Queue, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        world.cost_s += 0.0001 * len(runs)
        requeued(self, runs, now, is_asked=is_asked)

    monkeypatch.setattr(Consumers, "remove", remove)
    monkeypatch.setattr(Queue, "requeue", requeue)
    return world


def turn(world: World) -> float:
    """One turn; what it cost."""
    before = world.cost_s
    for connection in world.broker.turn(world.now):
        world.clients[connection].flush()
    return world.cost_s - before


def with_unacked(world: World, *numbers: int) -> Client:
    """A client that holds messages unacknowledged, each a run of its own."""
    client = world.client(*numbers)
    assert isinstance(client.ask(numbers[0], QueueDeclare(queue="q")), QueueDeclareOk)
    client.send(numbers[0], BasicConsume(queue="q"))
    for n in range(COUNT):
        client.publish(numbers[0], "q", str(n).encode())
        world.settle()
    assert len(client.bodies()) == COUNT
    return client


def test_requeueing_is_done_by_turns(world: World) -> None:
    client, other = with_unacked(world, 1), world.client()
    began = world.cost_s
    client.send(1, ChannelClose(200, "", 0, 0))
    assert world.cost_s - began <= CHORES_S + MARGIN_S
    costs = [turn(world)]
    while world.broker.chores.has_work:
        other.send(1, BasicQos())
        costs.append(turn(world))
    assert max(costs) <= CHORES_S + MARGIN_S
    assert client.methods() == [ChannelCloseOk()]
    assert other.methods() == [BasicQosOk()] * (len(costs) - 1)
    assert world.queue("q").backlog.count == COUNT
    assert world.queue("q").unacked_count == 0
    assert not world.broker.closing


def test_a_channel_that_is_opened_again_at_once_is_first_closed(world: World) -> None:
    """Replies of one channel keep the order of what was asked; the connection reads on when it is open again."""
    client = with_unacked(world, 1)
    client.send(1, ChannelClose(200, "", 0, 0))
    client.send(1, ChannelOpen())
    client.send(1, BasicQos())
    assert world.broker.chores.has_work
    while world.broker.chores.has_work:
        turn(world)
    assert client.methods() == [ChannelCloseOk(), ChannelOpenOk(), BasicQosOk()]


def test_a_connection_that_ends_while_a_channel_waits_to_be_opened_again(world: World) -> None:
    client = with_unacked(world, 1)
    client.send(1, ChannelClose(200, "", 0, 0))
    client.send(1, ChannelOpen())
    client.connection.force_close("enough")
    while world.broker.chores.has_work:
        turn(world)
    assert [type(each) for each in client.methods()] == [ConnectionClose, ChannelCloseOk]


def test_the_answer_waits_for_the_last_piece(world: World) -> None:
    client = with_unacked(world, 1)
    client.send(1, ChannelClose(200, "", 0, 0))
    assert world.broker.chores.has_work
    turn(world)
    client._decode()
    assert client._unread == []
    assert client.methods() == [ChannelCloseOk()]


def test_order_is_kept_for_who_waits_for_the_messages(world: World) -> None:
    """Messages come back from the last to the first, and no consumer gets any before all are there."""
    client, other = with_unacked(world, 1), world.client()
    other.send(1, BasicConsume(queue="q"))
    other.received()
    client.send(1, ChannelClose(200, "", 0, 0))
    assert other.bodies() == [str(n).encode() for n in range(COUNT)]


def test_who_copies_the_queue_meanwhile_sees_all_messages(world: World) -> None:
    client, queue = with_unacked(world, 1), world.queue("q")
    client.send(1, ChannelClose(200, "", 0, 0))
    assert 0 < queue.backlog.count < COUNT
    while world.broker.chores.has_work:
        assert sum(map(len, unsettled(world.broker, queue))) + queue.backlog.count == COUNT
        turn(world)


def test_consumers_leave_by_turns(world: World) -> None:
    client, other = world.client(), world.client()
    client.ask(1, QueueDeclare(queue="q"))
    for n in range(COUNT):
        client.send(1, BasicConsume(queue="q", consumer_tag=str(n), no_ack=True, nowait=True))
    world.settle()
    began = world.cost_s
    client.lose()
    assert world.cost_s - began <= CHORES_S + MARGIN_S
    assert 0 < len(world.queue("q").consumers) < COUNT
    other.publish(1, "q", b"for nobody")
    costs = []
    while world.broker.chores.has_work:
        costs.append(turn(world))
    assert max(costs) <= CHORES_S + MARGIN_S
    assert len(world.queue("q").consumers) == 0
    other.send(1, BasicGet(queue="q"))
    assert other.bodies() == [b"for nobody"], "who is leaving gets nothing"
    other.send(1, BasicGet(queue="q"))
    assert isinstance(other.methods()[0], BasicGetEmpty)


def test_exclusive_queues_go_by_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Queue.close

    def close(self: LiveQueue) -> None:
        world.cost_s += 0.0001
        closed(self)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "close", close)
    client = world.client()
    for n in range(COUNT):
        client.send(1, QueueDeclare(queue=str(n), exclusive=True, nowait=True))
    world.settle()
    assert len(world.queue_names) == COUNT
    began = world.cost_s
    client.send(0, ConnectionClose(200, "", 0, 0))
    assert world.cost_s - began <= CHORES_S + MARGIN_S
    costs = []
    while world.broker.chores.has_work:
        assert client._unread == []
        costs.append(turn(world))
    assert max(costs) <= CHORES_S + MARGIN_S
    assert not world.queue_names
    assert [type(method).__name__ for method in client.methods()] == ["ConnectionCloseOk"]


def test_consumers_of_a_deleted_queue_are_cancelled_by_turns(world: World) -> None:
    client, other = world.client(), world.client()
    client.ask(1, QueueDeclare(queue="q"))
    for n in range(COUNT):
        client.send(1, BasicConsume(queue="q", consumer_tag=str(n), nowait=True))
    world.settle()
    began = world.cost_s
    world.broker.queue_unused(world.queue("q"), world.now)
    assert world.cost_s - began <= CHORES_S + MARGIN_S
    assert client.channel().consumers
    assert other.ask(1, QueueDeclare(queue="q")) == QueueDeclareOk("q", 0, 0), "the name is free"
    assert not client.channel().consumers
