"""Publishes whose routing key changes with each message do what the same publishes do one by one."""

from collections.abc import Sequence

import pytest

from node.amqp.field_table import Table, long
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.amqp.properties import Properties
from node.client.channel import Channel
from node.client.series import Address, publish_series
from tests.kit.recorder import publish
from tests.kit.world import Client, World

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture(autouse=True)
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the series that are published."""
    found: list[int] = []

    def published(
        channel: Channel, addresses: Sequence[Address], contents: Sequence[bytes], size: int
    ) -> None:
        found.append(len(contents))
        publish_series(channel, addresses, contents, size)

    monkeypatch.setattr("node.client.connection.publish_series", published)
    return found


def client_with_queues(arguments: Table | None = None, *, durable: bool = False) -> Client:
    """Return a client with the exchange x, from which the keys a and b lead to the queue q and c to the queue r."""
    client = World().client()
    client.send(1, ExchangeDeclare(exchange="x", type="direct"))
    for queue, keys in ("q", "ab"), ("r", "c"):
        client.send(1, QueueDeclare(queue=queue, arguments=arguments or {}, durable=durable))
        for key in keys:
            client.send(1, QueueBind(queue=queue, exchange="x", routing_key=key))
    client.received()
    return client


def in_turn(keys: str, first: int = 0, properties: Properties | None = None) -> bytes:
    """Return publishes with these keys, whose bodies are numbers."""
    return b"".join(
        publish(key=key, body=b"%04d" % number, exchange="x", properties=properties)
        for number, key in enumerate(keys, first)
    )


def contents_of(world: World, queue: str) -> list[tuple[str, bytes]]:
    """Return the keys and the bodies of a queue's messages, in order."""
    return [
        (run.envelope.routing_key, content[-5:-1])
        for level in world.queue(queue).backlog.levels
        for run in level.in_memory(0)
        for content in run.contents
    ]


def numbered(keys: str, of: str) -> list[tuple[str, bytes]]:
    return [(key, b"%04d" % number) for number, key in enumerate(keys) if key in of]


def test_messages_come_to_their_queues_in_order(lengths: list[int]) -> None:
    client = client_with_queues()
    keys = "abc" + "abcacb" * 20
    client.feed(in_turn(keys))
    assert lengths == [120]
    assert contents_of(client.world, "q") == numbered(keys, "ab")
    assert contents_of(client.world, "r") == numbered(keys, "c")


def test_deliveries_keep_the_order_and_name_the_key(lengths: list[int]) -> None:
    client = client_with_queues()
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    keys = "abc" + "abcacb" * 20
    client.feed(in_turn(keys))
    found = [(each.method, each.body) for each in client.received()]
    assert lengths
    assert [
        (method.routing_key, body) for method, body in found if isinstance(method, BasicDeliver)
    ] == numbered(keys, "ab")
    tags = [method.delivery_tag for method, _ in found if isinstance(method, BasicDeliver)]
    assert tags == list(range(1, len(tags) + 1))
    client.send(1, BasicAck(len(tags) // 2, multiple=True))
    assert client.world.queue("q").unacked_count == len(tags) - len(tags) // 2


@pytest.mark.parametrize(("durable", "properties"), [(False, None), (True, PERSISTENT), (True, None)])
def test_each_message_is_confirmed_once(
    durable: bool, properties: Properties | None, lengths: list[int]
) -> None:
    client = client_with_queues(durable=durable)
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    client.feed(in_turn("abc" * 10, properties=properties))
    assert lengths
    assert client.methods() == [BasicAck(30, multiple=True)]
    assert client.channel().counters.confirm == 30


def test_all_are_counted(lengths: list[int]) -> None:
    client = client_with_queues()
    client.feed(in_turn("abc" * 10))
    assert lengths
    assert client.channel().counters.publish == 30
    counters = client.world.broker.vhosts["/"].exchange_counters["x"]
    assert (counters.publish_in, counters.publish_out) == (30, 30)


def test_routes_that_have_changed_are_not_used() -> None:
    client = client_with_queues()
    client.feed(in_turn("abcabc"))
    client.send(1, QueueUnbind(queue="q", exchange="x", routing_key="a"))
    client.send(1, QueueBind(queue="r", exchange="x", routing_key="a"))
    client.received()
    client.feed(in_turn("abcabc", first=6))
    assert [body for key, body in contents_of(client.world, "r") if key == "a"] == [b"0006", b"0009"]
    assert client.ask(1, QueueDelete(queue="r")) == QueueDeleteOk(6)
    client.feed(in_turn("abcabc", first=12))
    assert [body for _, body in contents_of(client.world, "q")][-2:] == [b"0013", b"0016"]
    assert client.channel().counters.drop_unroutable == 4


def test_queues_with_rules_look_at_each_message(lengths: list[int]) -> None:
    client = client_with_queues({"x-max-length": long(2)})
    client.feed(in_turn("abcab"))
    assert lengths == []
    assert [body for _, body in contents_of(client.world, "q")] == [b"0003", b"0004"]


def test_messages_of_a_transaction_wait_for_it(lengths: list[int]) -> None:
    client = client_with_queues()
    client.feed(in_turn("abc"))
    assert client.ask(1, TxSelect()) == TxSelectOk()
    client.feed(in_turn("abcabc", first=3))
    assert lengths == []
    assert len(contents_of(client.world, "q")) == 2
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert len(contents_of(client.world, "q")) == 6


def test_large_messages_go_to_the_message_store_one_by_one(lengths: list[int]) -> None:
    client = client_with_queues()
    client.world.broker.storage.embed_max_bytes = 256
    client.feed(b"".join(publish(key=key, body=bytes(256), exchange="x") for key in "abcabc"))
    assert lengths == []
    assert client.world.queue("q").backlog.count == 4


def test_a_share_ends_between_two_series() -> None:
    """However many messages have other keys each, other clients wait for no more than one series."""
    client = client_with_queues()
    world = client.world
    client.feed(in_turn("abc"))
    seen: list[int] = []
    receive = client.connection.on_series

    def on_series(*arguments: object) -> None:
        world.cost_s += 1.0
        receive(*arguments)  # type: ignore[arg-type]
        seen.append(world.queue("q").next_seq + world.queue("r").next_seq - 2)

    client.connection.on_series = on_series  # type: ignore[method-assign]
    client.feed(in_turn("abc" * 300))
    assert len(seen) == 1
    assert not client.connection.is_reading
    world.settle()
    assert len(contents_of(world, "q")) == 602
