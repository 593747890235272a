"""Messages for very many queues, a part at a time."""

import weakref

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)
from node.client.spreading import WIDE_COST
from node.queue.queue import Queue
from node.scheduling.chores import CHORES_S
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.world import Client, World

COUNT = WIDE_COST + 1500
PART_S = 0.010
"""A part costs this much: 500 queues at 20 us each."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker where each queue that takes a run costs 20 us, with more queues at `amq.fanout` than fit one turn."""
    world = World()
    published = Queue.enqueue

    def enqueue(self: Queue, *arguments: object) -> list[int]:
        world.cost_s += 0.00002
        return published(self, *arguments)  # type: ignore[arg-type]

    client = world.client()
    for n in range(COUNT):
        client.send(1, QueueDeclare(queue=f"q{n:04}", nowait=True))
        client.send(1, QueueBind(queue=f"q{n:04}", exchange="amq.fanout", nowait=True))
        world.settle()
    client.lose()
    world.settle()
    monkeypatch.setattr(Queue, "enqueue", enqueue)
    return world


def turn(world: World) -> float:
    before = world.cost_s
    for connection in world.broker.turn(world.now):
        world.clients[connection].flush()
    return world.cost_s - before


def bodies(world: World, queue: str) -> list[bytes]:
    """Take all messages from a queue and return their bodies."""
    reader, found = world.client(), []
    while True:
        reader.send(1, BasicGet(queue=queue, no_ack=True))
        answer = reader.bodies()
        if not answer:
            return found
        found += answer


def publisher(world: World) -> Client:
    client = world.client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def test_a_wide_message_goes_out_by_turns(world: World) -> None:
    client, other = publisher(world), world.client()
    before = world.cost_s
    client.publish(1, "", b"m", exchange="amq.fanout")
    assert world.cost_s - before <= CHORES_S + PART_S
    costs = []
    while world.broker.has_work:
        other.send(1, BasicQos())
        costs.append(turn(world))
        other.flush()
    assert max(costs) <= CHORES_S + PART_S
    assert other.methods()[0] == BasicQosOk()
    assert client.methods() == [BasicAck(1, False)]
    assert all(world.queue(f"q{n:04}").backlog.count == 1 for n in range(COUNT))


def test_what_comes_behind_it_stays_behind_it(world: World) -> None:
    client = publisher(world)
    client.publish(1, "", b"1", b"2", exchange="amq.fanout")
    client.publish(1, f"q{COUNT - 1:04}", b"3")
    client.publish(1, "", b"4", exchange="amq.fanout")
    assert not client.connection.is_reading
    world.settle()
    assert client.connection.is_reading
    assert bodies(world, f"q{COUNT - 1:04}") == [b"1", b"2", b"3", b"4"]
    assert bodies(world, "q0000") == [b"1", b"2", b"4"]
    confirmed = [method.delivery_tag for method in client.methods() if isinstance(method, BasicAck)]
    assert confirmed[-1] == 4


def test_it_is_spread_to_the_end_when_its_publisher_leaves(world: World) -> None:
    client = world.client()
    client.publish(1, "", b"m", exchange="amq.fanout")
    assert world.queue(f"q{COUNT - 1:04}").backlog.count == 0
    connection = weakref.ref(client.connection)
    client.lose()
    del client
    with no_search_for_cycles():
        world.settle()
        assert world.queue(f"q{COUNT - 1:04}").backlog.count == 1
        assert_gone(connection)


def test_a_channel_that_closes_meanwhile_is_told_nothing_more(world: World) -> None:
    client = publisher(world)
    client.publish(1, "", b"m", exchange="amq.fanout")
    client.send(1, ChannelClose(200, "", 0, 0))
    assert [type(method).__name__ for method in client.methods()][-1] == "ChannelCloseOk"
    assert world.queue(f"q{COUNT - 1:04}").backlog.count == 1


def test_a_queue_that_is_deleted_meanwhile_gets_nothing(world: World) -> None:
    client, other = publisher(world), world.client()
    client.publish(1, "", b"m", exchange="amq.fanout")
    other.send(1, QueueDelete(queue=f"q{COUNT - 1:04}", nowait=True))
    world.settle()
    assert client.methods() == [BasicAck(1, False)]


def test_a_refusal_of_any_part_is_a_refusal(world: World) -> None:
    client = publisher(world)
    arguments = {"x-max-length": long(0), "x-overflow": longstr("reject-publish")}
    client.send(1, QueueDeclare(queue="r", arguments=arguments))
    client.send(1, QueueBind(queue="r", exchange="amq.fanout", nowait=True))
    client.received()
    client.publish(1, "", b"m", exchange="amq.fanout")
    (answer,) = client.methods()
    assert isinstance(answer, BasicNack)
    assert answer.delivery_tag == 1
