"""A channel: deliveries, credit, tags and settling, and the way of a direct reply (amqp-behaviour §4.6–§4.12)."""

from collections import Counter

import pytest

from node.amqp.field_table import Table, array, boolean, long, longstr
from node.amqp.frames import method_frame
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
    BasicRecover,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from node.client.base_connection import OUT_MAX_BYTES
from node.client.settings import BrokerSettings
from tests.kit.world import Client, Received, World, check_invariants

NOTIFY = {"consumer_cancel_notify": boolean(True)}


def with_queue(*bodies: bytes, channels: tuple[int, ...] = (1,), world: World | None = None) -> Client:
    """A client with the queue q, and these messages in it."""
    client = (world or World()).client(*channels)
    client.send(1, QueueDeclare(queue="q"))
    client.publish(1, "q", *bodies)
    client.received()
    return client


def deliveries(client: Client) -> list[tuple[str, int, bytes]]:
    """Consumer, tag and body of what was delivered since the last time; marked where it was redelivered."""
    check_invariants(client.world)
    return [
        (item.method.consumer_tag, item.method.delivery_tag, item.body + b"!" * item.method.redelivered)
        for item in client.received()
        if isinstance(item.method, BasicDeliver)
    ]


# --- delivering -------------------------------------------------------------------------------------------


def test_a_delivery_on_the_wire() -> None:
    client = with_queue()
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    properties = Properties(message_id="m", delivery_mode=2)
    client.publish(1, "q", b"body", properties=properties)
    assert client.received() == [
        Received(1, BasicConsumeOk("t")),
        Received(1, BasicDeliver("t", 1, False, "", "q"), properties, b"body"),
    ]


def test_messages_of_different_routes_in_order() -> None:
    client = with_queue()
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    for exchange, key in (("", "q"), ("amq.fanout", "k"), ("amq.fanout", "kk")):
        if exchange:
            client.send(1, QueueBind(queue="q", exchange=exchange, nowait=True))
        client.publish(1, key, b"1", b"2", exchange=exchange)
    routes = [
        (item.method.exchange, item.method.routing_key, item.method.delivery_tag)
        for item in client.received()
        if isinstance(item.method, BasicDeliver)
    ]
    assert routes == [
        ("", "q", 1),
        ("", "q", 2),
        ("amq.fanout", "k", 3),
        ("amq.fanout", "k", 4),
        ("amq.fanout", "kk", 5),
        ("amq.fanout", "kk", 6),
    ]


def test_another_channel_number_is_patched_in() -> None:
    client = with_queue(b"x" * 200, b"y", channels=(1, 2, 515))
    client.send(515, BasicConsume(queue="q", consumer_tag="t"))
    assert [(item.channel, item.body) for item in client.received()] == [
        (515, b""),
        (515, b"x" * 200),
        (515, b"y"),
    ]


def test_a_smaller_frame_max_cuts_anew() -> None:
    """Trap of §1: frame_max includes the overhead; the harness checks each frame against it."""
    body = bytes(range(256)) * 100
    client = with_queue(body, b"small")
    other = client.world.client(frame_max=4096)
    other.send(1, BasicConsume(queue="q", no_ack=True))
    assert other.bodies() == [body, b"small"]
    client.publish(1, "q", body)
    assert other.bodies() == [body]


def test_no_more_than_the_room_in_a_turn() -> None:
    client = with_queue(*[b"x" * 10_000] * 100)
    client.takes_output = False
    client.send(1, BasicConsume(queue="q", no_ack=True))
    client.world.settle()
    taken = 100 - client.world.queue("q").backlog.count
    assert OUT_MAX_BYTES // 10_000 <= taken <= OUT_MAX_BYTES // 10_000 + 2
    client.takes_output = True
    client.flush()
    assert len(client.bodies()) == 100


def test_a_socket_that_takes_nothing_gets_nothing() -> None:
    """A slow socket stops its own consumers only."""
    client = with_queue()
    other = client.world.client()
    for each in (client, other):
        each.send(1, BasicConsume(queue="q", no_ack=True))
        each.received()
    client.connection.is_writable = False
    client.publish(1, "q", b"1", b"2")
    assert (client.bodies(), other.bodies()) == ([], [b"1", b"2"])
    client.connection.is_writable = True
    client.connection.flushed()
    client.publish(1, "q", b"3", b"4")
    assert sorted(client.bodies() + other.bodies()) == [b"3", b"4"]


def test_an_ack_while_the_socket_is_full_is_not_forgotten() -> None:
    """The consumer waits for credit, then for room: it must go on when there is room, whatever came first."""
    client = with_queue(b"1", b"2")
    client.send(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q"))
    assert client.bodies() == [b"1"]
    client.connection.is_writable = False
    client.send(1, BasicAck(1))
    assert client.bodies() == []
    client.connection.is_writable = True
    client.connection.flushed()
    assert client.bodies() == [b"2"]


# --- §4.9: prefetch ---------------------------------------------------------------------------------------


def test_prefetch_of_each_consumer() -> None:
    """§4.9 row global=false: for consumers created after it."""
    client = with_queue(*[b"%d" % n for n in range(9)])
    client.send(1, BasicQos(prefetch_count=2))
    client.send(1, BasicConsume(queue="q", consumer_tag="a"))
    assert deliveries(client) == [("a", 1, b"0"), ("a", 2, b"1")]
    client.send(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q", consumer_tag="b"))
    assert deliveries(client) == [("b", 3, b"2")]
    client.send(1, BasicAck(2))
    assert deliveries(client) == [("a", 4, b"3")]
    client.send(1, BasicAck(3))
    assert deliveries(client) == [("b", 5, b"4")]


def test_prefetch_of_a_consumer_that_comes_back() -> None:
    """§4.9: what a cancelled consumer still has open counts for nobody, not even under the same tag."""
    client = with_queue(*[b"%d" % n for n in range(9)])
    client.send(1, BasicQos(prefetch_count=1))
    for number in range(2):
        client.send(1, BasicConsume(queue="q", consumer_tag="a"))
        assert deliveries(client) == [("a", number + 1, b"%d" % number)]
        client.send(1, BasicCancel("a"))
    client.send(1, BasicConsume(queue="q", consumer_tag="a"))
    assert deliveries(client) == [("a", 3, b"2")]
    client.send(1, BasicAck(2, multiple=True))
    assert deliveries(client) == []
    client.send(1, BasicAck(3))
    assert deliveries(client) == [("a", 4, b"3")]


def test_prefetch_of_the_channel() -> None:
    """§4.9 row global=true: shared, stops no_ack consumers too; 0 lifts it."""
    client = with_queue()
    client.send(1, BasicQos(prefetch_count=2, global_=True))
    client.send(1, BasicConsume(queue="q", consumer_tag="a"))
    client.send(1, BasicConsume(queue="q", consumer_tag="b", no_ack=True))
    client.publish(1, "q", *[b"%d" % n for n in range(9)])
    assert deliveries(client) == [("a", 1, b"0"), ("b", 2, b"1"), ("a", 3, b"2")]
    client.send(1, BasicQos(prefetch_count=3, global_=True))
    assert deliveries(client)[-1][0] == "a"
    assert client.channel().unacked.count == 3
    left = client.world.queue("q").backlog.count
    client.send(1, BasicAck(3))
    assert deliveries(client)[-1][0] == "a"
    assert 0 < client.world.queue("q").backlog.count < left
    client.send(1, BasicQos(prefetch_count=0, global_=True))
    client.received()
    assert client.world.queue("q").backlog.count == 0


def test_a_limit_for_each_lifts_that_of_the_channel() -> None:
    """§4.9: it also removes a channel-wide limit set earlier."""
    client = with_queue(b"1", b"2")
    client.send(1, BasicQos(prefetch_count=1, global_=True))
    client.send(1, BasicConsume(queue="q"))
    assert client.bodies() == [b"1"]
    client.send(1, BasicQos(prefetch_count=5))
    assert client.bodies() == [b"2"]


def test_what_was_got_before_counts_against_the_limit_of_the_channel() -> None:
    """§4.9: the initial count also includes unacked gets; later gets don't count."""
    client = with_queue(*[b"%d" % n for n in range(9)])
    for _ in range(2):
        client.send(1, BasicGet(queue="q"))
    client.send(1, BasicQos(prefetch_count=3, global_=True))
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert deliveries(client) == [("t", 4, b"3")]
    client.send(1, BasicAck(3))
    assert deliveries(client) == []
    client.send(1, BasicAck(1))
    assert deliveries(client) == [("t", 5, b"4")]
    client.send(1, BasicQos(prefetch_count=4, global_=True))
    assert deliveries(client) == [("t", 6, b"5")]


def test_both_limits() -> None:
    """§4.9: both may be active if per-consumer is set first."""
    client = with_queue(*[b"%d" % n for n in range(9)])
    client.send(1, BasicQos(prefetch_count=2))
    client.send(1, BasicQos(prefetch_count=3, global_=True))
    client.send(1, BasicConsume(queue="q", consumer_tag="a"))
    client.send(1, BasicConsume(queue="q", consumer_tag="b"))
    assert len(deliveries(client)) == 3
    assert client.channel().consumers["a"].unacked == 2


def test_defaults_from_the_settings() -> None:
    client = with_queue(b"1", b"2", world=World(BrokerSettings(default_prefetch=1)))
    client.send(1, BasicConsume(queue="q"))
    assert client.bodies() == [b"1"]
    client = with_queue(b"1", b"2", world=World(BrokerSettings(default_prefetch_limit=1)))
    client.send(1, BasicConsume(queue="q"))
    assert client.bodies() == [b"1"]


@pytest.mark.parametrize("how", ["get", "consume"])
def test_quorum_queues_tell_how_often_a_message_came_back(how: str) -> None:
    """In the header x-delivery-count; other queues have it if they have a delivery limit."""
    world = World()
    first = long(0) if how == "get" else None  # as in RabbitMQ 3.10
    counted = [first, long(1), long(2)]
    for kind, expected in (("quorum", counted), ("classic", [None, None, None]), ("limited", counted)):
        client = world.client()
        arguments: Table = {"x-queue-type": longstr("quorum" if kind == "quorum" else "classic")}
        if kind == "limited":
            arguments["x-delivery-limit"] = long(5)
        client.send(1, QueueDeclare(queue=kind, durable=True, arguments=arguments))
        client.publish(1, kind, b"x", properties=Properties(headers={"mine": long(5)}))
        client.received()
        if how == "consume":
            client.send(1, BasicConsume(queue=kind))
        found = []
        for tag in (1, 2, 3):
            if how == "get":
                client.send(1, BasicGet(queue=kind))
            headers = [item.properties.headers for item in client.received() if item.properties]
            assert len(headers) == 1
            assert headers[0] is not None
            assert headers[0]["mine"] == long(5)
            found.append(headers[0].get("x-delivery-count"))
            client.send(1, BasicNack(tag))
        assert found == expected
        client.lose()


# --- §4.10: settling --------------------------------------------------------------------------------------


def test_acks_of_each_kind() -> None:
    client = with_queue(*[b"%d" % n for n in range(6)])
    client.send(1, BasicConsume(queue="q"))
    client.received()
    queue = client.world.queue("q")
    client.send(1, BasicAck(1))
    client.send(1, BasicAck(3, multiple=True))
    assert queue.unacked_count == 3
    client.send(1, BasicReject(4, requeue=False))
    client.send(1, BasicNack(5, requeue=False))
    assert queue.unacked_count == 1
    client.send(1, BasicAck(0, multiple=True))
    client.send(1, BasicAck(0, multiple=True))
    assert (queue.unacked_count, queue.backlog.count) == (0, 0)
    assert client.received() == []


@pytest.mark.parametrize(
    ("method", "tag"),
    [
        (BasicAck(9), 9),
        (BasicAck(0), 0),
        (BasicAck(9, multiple=True), 9),
        (BasicNack(9), 9),
        (BasicNack(2, multiple=True), 2),
        (BasicReject(2), 2),
        (BasicAck(2), 2),
    ],
)
def test_unknown_delivery_tag(method: BasicAck | BasicNack | BasicReject, tag: int) -> None:
    """§4.10; here 2 was settled and 1 and 3 are open: they go back to the queue."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicConsume(queue="q"))
    client.received()
    client.send(1, BasicAck(2))
    assert client.ask(1, method) == ChannelClose(
        406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", 60, method.method_id
    )
    assert client.world.queue("q").backlog.count == 2
    check_invariants(client.world)


def test_acks_before_an_unknown_tag_count() -> None:
    """A run of acks is as if each came alone."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicConsume(queue="q"))
    client.received()
    client.feed(b"".join(method_frame(1, BasicAck(tag)) for tag in (1, 2, 3, 4, 5)))
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_text == "PRECONDITION_FAILED - unknown delivery tag 4"
    assert client.world.queue("q").backlog.count == 0


def test_tags_are_the_channels_own() -> None:
    """§2.4, traps: acking on the wrong channel gives 406."""
    client = with_queue(b"1", channels=(1, 2))
    client.send(1, BasicConsume(queue="q"))
    client.received()
    answer = client.ask(2, BasicAck(1))
    assert isinstance(answer, ChannelClose)
    client.send(1, BasicAck(1))
    assert client.received() == []


def test_acks_on_a_channel_that_is_not_open() -> None:
    client = with_queue(channels=(1, 2))
    client.ask(2, BasicGet(queue="nope"))
    client.send(2, BasicAck(1))
    assert client.received() == []
    client.send(3, BasicAck(1))
    (close,) = client.methods()
    assert getattr(close, "reply_text", "") == "CHANNEL_ERROR - expected 'channel.open'"


def test_requeue_keeps_the_order() -> None:
    """§4.11: bulk requeue keeps original order, and everything is redelivered."""
    client = with_queue(*b"0 1 2 3 4 5".split())
    client.send(1, BasicQos(prefetch_count=4))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    client.send(1, BasicNack(2))
    assert deliveries(client) == [("t", 5, b"1!")]
    client.send(1, BasicNack(0, multiple=True))
    assert [body for _, _, body in deliveries(client)] == [b"0!", b"1!", b"2!", b"3!"]
    client.send(1, BasicRecover(requeue=True))
    assert [body for _, _, body in deliveries(client)] == [b"0!", b"1!", b"2!", b"3!"]


def test_a_closed_channel_gives_everything_back() -> None:
    """§2.1 row `client channel.close`."""
    client = with_queue(*b"0 1 2".split(), channels=(1, 2))
    client.send(1, BasicConsume(queue="q"))
    client.received()
    client.send(1, BasicAck(2))
    assert client.ask(1, ChannelClose()) == ChannelCloseOk()
    queue = client.world.queue("q")
    assert (queue.backlog.count, queue.unacked_count, len(queue.consumers)) == (2, 0, 0)
    client.send(2, BasicConsume(queue="q", consumer_tag="t"))
    assert deliveries(client) == [("t", 1, b"0!"), ("t", 2, b"2!")]


def test_what_a_consumer_held_survives_its_cancel() -> None:
    """§4.6 last row: unacked deliveries stay ackable."""
    client = with_queue(b"1", b"2")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    assert client.ask(1, BasicCancel("t")) == BasicCancelOk("t")
    client.send(1, BasicAck(1))
    client.send(1, BasicNack(2))
    assert client.received() == []
    queue = client.world.queue("q")
    assert (queue.unacked_count, queue.backlog.count) == (0, 1)


def test_settling_for_a_queue_that_is_gone() -> None:
    """§4.10: silently fine."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicConsume(queue="q"))
    client.received()
    client.send(1, QueueDelete(queue="q"))
    client.received()
    client.send(1, BasicAck(1))
    client.send(1, BasicNack(2))
    client.send(1, BasicReject(3, requeue=False))
    assert client.received() == []
    assert client.channel().unacked.count == 0


def test_a_delivery_that_is_never_acknowledged() -> None:
    """§4.10 last row: 406 with ids 0, 0, and the message goes back."""
    client = with_queue(b"1", world=World(BrokerSettings(consumer_timeout_ms=90_000)))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    client.world.advance(61)
    assert client.received() == []
    client.world.advance(60)
    assert client.methods() == [
        ChannelClose(
            406,
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 90000 ms. "
            "This timeout value can be configured, see consumers doc guide to learn more",
            0,
            0,
        )
    ]
    assert client.world.queue("q").backlog.count == 1
    assert "consumer timed out: t on 1" in client.world.diary.entries


# --- §4.5: tags of get ------------------------------------------------------------------------------------


def test_get_and_deliver_share_the_tags() -> None:
    """§4.5: no_ack get also consumes a tag number."""
    client = with_queue(b"1", b"2", b"3")
    assert client.ask(1, BasicGet(queue="q")) == BasicGetOk(1, False, "", "q", 2)
    assert client.ask(1, BasicGet(queue="q", no_ack=True)) == BasicGetOk(2, False, "", "q", 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert deliveries(client) == [("t", 3, b"3")]
    assert client.ask(1, BasicGet(queue="q")) == BasicGetEmpty()


# --- §4.2: returns ----------------------------------------------------------------------------------------


def test_a_return() -> None:
    client = World().client(1, 5)
    properties = Properties(app_id="a", headers={"BCC": array([longstr("nobody")]), "x": longstr("y")})
    client.publish(5, "nowhere", b"back", mandatory=True, properties=properties)
    client.publish(5, "nowhere", b"gone")
    assert client.received() == [
        Received(
            5,
            BasicReturn(312, "NO_ROUTE", "", "nowhere"),
            Properties(app_id="a", headers={"x": longstr("y")}),
            b"back",
        )
    ]


# --- §4.7: cancelled by the server ------------------------------------------------------------------------


@pytest.mark.parametrize("wants_to_know", [False, True])
def test_a_deleted_queue_cancels_its_consumers(wants_to_know: bool) -> None:
    """§3.11: the deleting channel gets delete-ok first; §4.7: silent without the capability."""
    world = World()
    client = world.client(1, 2, capabilities=NOTIFY if wants_to_know else {})
    client.send(1, QueueDeclare(queue="q"))
    for channel, tag in ((1, "a"), (2, "b")):
        client.send(channel, BasicConsume(queue="q", consumer_tag=tag))
    client.received()
    client.send(1, QueueDelete(queue="q"))
    received = client.received()
    on_channel = {number: [item.method for item in received if item.channel == number] for number in (1, 2)}
    if wants_to_know:
        assert on_channel[1] == [QueueDeleteOk(0), BasicCancel("a", nowait=True)]
        assert on_channel[2] == [BasicCancel("b", nowait=True)]
    else:
        assert on_channel == {1: [QueueDeleteOk(0)], 2: []}
    assert client.channel(1).consumers == client.channel(2).consumers == {}


# --- §4.12: direct reply-to -------------------------------------------------------------------------------

REPLY_TO = "amq.rabbitmq.reply-to"


def requester(world: World) -> tuple[Client, str]:
    """A client that waits for replies, and the name under which its request reached the queue."""
    client = world.client()
    client.send(1, QueueDeclare(queue="requests"))
    client.received()
    assert client.ask(1, BasicConsume(queue=REPLY_TO, consumer_tag="r", no_ack=True)) == BasicConsumeOk("r")
    client.publish(1, "requests", b"ask", properties=Properties(reply_to=REPLY_TO, correlation_id="c"))
    server = world.client()
    server.send(1, BasicGet(queue="requests", no_ack=True))
    (request,) = server.received()
    assert request.properties is not None
    assert request.properties.correlation_id == "c"
    name = request.properties.reply_to
    assert name is not None
    assert name.startswith(f"{REPLY_TO}.")
    return client, name


def test_a_direct_reply() -> None:
    """§4.12: delivered straight, its tag is the next one and isn't used up."""
    world = World()
    client, name = requester(world)
    server = world.client(9)
    for body in (b"one", b"two"):
        server.publish(9, name, body, properties=Properties(correlation_id="c"))
        assert client.received() == [
            Received(1, BasicDeliver("r", 1, False, "", name), Properties(correlation_id="c"), body)
        ]
    assert server.received() == []


def test_a_reply_counts_as_unroutable() -> None:
    """§4.12: mandatory also gives basic.return, although delivered."""
    world = World()
    client, name = requester(world)
    client.send(1, BasicPublish(routing_key=name, mandatory=True), b"x")
    assert [type(method) for method in client.methods()] == [BasicDeliver, BasicReturn]


@pytest.mark.parametrize("copies", [1, 3])
def test_a_reply_by_cc_is_delivered_once(copies: int) -> None:
    """§4.12: CC on the default exchange works; §3.15: one copy however often a key is named."""
    world = World()
    client, name = requester(world)
    headers = {"CC": array([longstr(name)] * copies)}
    world.client().publish(1, name, b"x", properties=Properties(headers=headers))
    world.client().publish(1, "other", b"y", properties=Properties(headers=headers))
    assert client.bodies() == [b"x", b"y"]


def test_a_reply_that_nobody_waits_for_is_dropped() -> None:
    world = World()
    client, name = requester(world)
    client.ask(1, BasicCancel("r"))
    server = world.client()
    server.publish(1, name, b"late")
    server.publish(1, REPLY_TO, b"base name")
    assert (client.received(), server.received()) == ([], [])
    assert client.ask(1, BasicConsume(queue=REPLY_TO, no_ack=True, consumer_tag="r")) == BasicConsumeOk("r")


def test_a_requester_that_closes_is_forgotten() -> None:
    world = World()
    client, name = requester(world)
    client.ask(1, ChannelClose())
    server = world.client()
    server.send(1, QueueDeclare(queue=name, passive=True))
    (close,) = server.methods()
    assert getattr(close, "reply_code", None) == 404


# --- the end ----------------------------------------------------------------------------------------------


def test_closing_with_an_open_transaction_rolls_it_back() -> None:
    """§4.4 last row but one: rollback, then requeue of unacked."""
    client = with_queue(*b"0 1 2".split())
    client.send(1, TxSelect())
    client.send(1, BasicConsume(queue="q"))
    client.received()
    client.publish(1, "q", b"never")
    client.send(1, BasicAck(1))
    client.send(1, BasicReject(2, requeue=False))
    client.ask(1, ChannelClose())
    queue = client.world.queue("q")
    assert (queue.backlog.count, queue.unacked_count) == (3, 0)
    client.ask(1, ChannelOpen())
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert [body for _, _, body in deliveries(client)] == [b"0!", b"1!", b"2!"]


def test_a_rollback_and_then_the_end() -> None:
    client = with_queue(b"0", b"1")
    client.send(1, TxSelect())
    client.send(1, BasicConsume(queue="q"))
    client.send(1, BasicAck(1))
    client.send(1, TxRollback())
    client.received()
    check_invariants(client.world)
    client.lose()
    assert client.world.queue("q").backlog.count == 2


@pytest.mark.parametrize("limit", [1, 3, 10])
@pytest.mark.parametrize("is_fed", [False, True], ids=["backlog", "publisher"])
@pytest.mark.parametrize("is_multiple", [False, True], ids=["each", "multiple"])
def test_the_limit_of_the_channel_is_shared_by_its_queues(
    limit: int, *, is_fed: bool, is_multiple: bool
) -> None:
    """§4.9: whichever has waited longest goes first, also while messages come into another one."""
    world = World()
    client = world.client(1, 2)
    for queue in "abc":
        client.send(1, QueueDeclare(queue=queue))
        client.publish(1, queue, *[b"x"] * 99)
    client.received()
    client.send(1, BasicQos(prefetch_count=limit, global_=True))
    for queue in "abc":
        client.send(1, BasicConsume(queue=queue, consumer_tag=queue))
    counts: Counter[str] = Counter()
    acked = 0
    while counts.total() < 99:
        counts.update(tag for tag, _, _ in deliveries(client))
        if is_fed:
            client.publish(2, "a", b"y")
        acked = counts.total() if is_multiple else acked + 1
        client.send(1, BasicAck(acked, is_multiple))
    assert min(counts[queue] for queue in "abc") >= 27, counts
