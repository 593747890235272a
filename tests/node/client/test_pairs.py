"""Channels count by queue and by exchange while somebody asks (numbers of a live RabbitMQ 3.10.8)."""

from dataclasses import asdict

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicNack,
    ConfirmSelect,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxSelect,
)
from node.client import pairs as module
from node.client.channel import Channel
from node.client.pairs import KEPT_S, ChannelPairs
from tests.kit.world import Client, World


def asked_world() -> tuple[World, Client]:
    """Queues a and b, the exchange x that leads to both, y that leads nowhere; somebody asks for pairs."""
    world = World()
    world.broker.pairs.ask(world.now)
    client = world.client(1, 2)
    for queue in ("a", "b"):
        client.ask(1, QueueDeclare(queue=queue))
    for exchange in ("x", "y"):
        client.ask(1, ExchangeDeclare(exchange=exchange, type="fanout"))
    for queue in ("a", "b"):
        client.ask(1, QueueBind(queue=queue, exchange="x"))
    return world, client


def pairs_of(client: Client, number: int = 1) -> ChannelPairs:
    channel: Channel = client.channel(number)
    assert channel.pairs is not None
    return channel.pairs


def counted(pair: object) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in asdict(pair).items() if count}  # type: ignore[call-overload]


def test_publishes_by_exchange_and_by_queue() -> None:
    world, client = asked_world()
    client.publish(1, "a", b"1", b"2")
    client.publish(1, "", b"3", exchange="x")
    client.publish(1, "", b"4", exchange="y")
    client.publish(1, "", b"5", exchange="y", mandatory=True)
    world.settle()
    pairs = pairs_of(client)
    assert {name: counted(pair) for name, pair in pairs.exchanges.items()} == {
        "": {"publish": 2},
        "x": {"publish": 1},
        "y": {"publish": 2, "drop_unroutable": 1, "return_unroutable": 1},
    }
    assert pairs.routed == {("a", ""): 2, ("a", "x"): 1, ("b", "x"): 1}
    assert not pairs_of(client, 2).exchanges


def test_confirms_by_exchange() -> None:
    world, client = asked_world()
    client.publish(1, "a", b"before confirms")
    client.ask(1, ConfirmSelect())
    client.publish(1, "a", b"1", b"2")
    client.publish(1, "", b"3", exchange="x")
    client.publish(1, "a", b"4")
    world.settle()
    assert {name: counted(pair) for name, pair in pairs_of(client).exchanges.items()} == {
        "": {"publish": 4, "confirm": 3},
        "x": {"publish": 1, "confirm": 1},
    }


def test_deliveries_by_queue() -> None:
    world, client = asked_world()
    client.publish(1, "", b"1", b"2", b"3", exchange="x")
    client.send(2, BasicGet(queue="a"))
    client.send(2, BasicNack(1, requeue=True))
    client.send(2, BasicGet(queue="a"))
    client.send(2, BasicAck(2))
    client.send(2, BasicGet(queue="a", no_ack=True))
    client.send(2, BasicConsume(queue="a", consumer_tag="c"))
    client.send(2, BasicConsume(queue="b", consumer_tag="d", no_ack=True))
    world.settle()
    client.send(2, BasicAck(4))
    client.send(2, QueueDeclare(queue="empty"))
    client.send(2, BasicGet(queue="empty"))
    world.settle()
    assert {name: counted(pair) for name, pair in pairs_of(client, 2).queues.items()} == {
        "a": {"deliver": 1, "get": 2, "get_no_ack": 1, "redeliver": 1, "ack": 2},
        "b": {"deliver_no_ack": 3},
        "empty": {"get_empty": 1},
    }


def test_a_transaction_counts_when_it_commits() -> None:
    world, client = asked_world()
    client.ask(1, TxSelect())
    client.publish(1, "", b"1", exchange="x")
    world.settle()
    assert not pairs_of(client).exchanges
    client.ask(1, TxCommit())
    assert counted(pairs_of(client).exchanges["x"]) == {"publish": 1}
    assert pairs_of(client).routed == {("a", "x"): 1, ("b", "x"): 1}


def test_nobody_counts_who_was_not_asked() -> None:
    world = World()
    client = world.client(1)
    client.ask(1, QueueDeclare(queue="a"))
    client.publish(1, "a", b"1")
    assert client.channel().pairs is None
    world.broker.pairs.ask(world.now)
    pairs = world.broker.pairs.begin(client.channel())
    client.publish(1, "a", b"2")
    world.settle()
    assert pairs.routed == {("a", ""): 1}
    assert client.channel().counters.publish == 2


def test_channels_stop_when_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 1)
    world, client = asked_world()
    client.publish(1, "a", b"1")
    world.advance(KEPT_S / 2)
    world.broker.pairs.ask(world.now)
    world.advance(KEPT_S / 2 + 1)
    assert client.channel(1).pairs is not None
    world.advance(KEPT_S / 2)
    assert client.channel(1).pairs is client.channel(2).pairs is None
    assert not world.broker.pairs.is_on
    assert world.broker.pairs.count == 0
    assert world.client(1).channel().pairs is None
    client.publish(1, "a", b"2")
    world.settle()


def test_whoever_asks_again_meanwhile_is_counted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that forgot already begin anew, the others go on."""
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 1)
    world, client = asked_world()
    world.broker.tick(world.now + KEPT_S)
    assert [client.channel(number).pairs is None for number in (1, 2)] == [True, False]
    world.broker.pairs.ask(world.broker.now)
    world.advance(1.0)
    assert client.channel(2).pairs is not None
    world.broker.pairs.begin(client.channel(1))
    assert client.channel(1).pairs is not None


def test_what_is_gone_is_forgotten() -> None:
    world, client = asked_world()
    client.publish(1, "", b"1", exchange="x")
    client.publish(1, "", b"1", exchange="y")
    client.publish(1, "a", b"1")
    client.send(1, BasicGet(queue="a", no_ack=True))
    client.send(1, BasicGet(queue="b", no_ack=True))
    world.settle()
    pairs, node = pairs_of(client), world.broker.pairs
    assert node.count == pairs.count == 8
    client.send(1, QueueDelete(queue="a"))
    client.send(1, ExchangeDelete(exchange="y"))
    world.settle()
    pairs.prune(world.broker.catalogue, "/")
    assert (set(pairs.queues), set(pairs.exchanges)) == ({"b"}, {"", "x"})
    assert pairs.routed == {("b", "x"): 1}
    assert node.count == pairs.count == 4
    client.lose()
    world.settle()
    assert node.count == 0


def test_there_is_a_limit_for_a_channel_and_for_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts beyond the limit of pairs are still in the channel's counters."""
    monkeypatch.setattr(module, "CHANNEL_PAIRS_MAX", 3)
    monkeypatch.setattr(module, "PAIRS_MAX", 5)
    world, client = asked_world()
    for number in (1, 2):
        client.publish(number, "", b"1", exchange="x")
        client.publish(number, "a", b"1")
        client.send(number, BasicGet(queue="a", no_ack=True))
    world.settle()
    assert [pairs_of(client, number).count for number in (1, 2)] == [3, 2]
    assert world.broker.pairs.count == 5
    assert client.channel(2).counters.publish == 2
    assert client.channel(2).counters.get_no_ack == 1
