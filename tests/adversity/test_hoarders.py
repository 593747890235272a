"""Clients that keep what they are given, and state that grows with what they send.

Messages in queues, in a transaction and unacknowledged are bounded by nothing but the machine until there is a
memory alarm (docs/limits.md, "What only the memory alarm ends"). What is tested: they cost what they weigh, and all
of it is given back. Contents of 1 KB are malloc's, which keeps freed pages below a used one; hence two rounds of an
attack, of which the second must do with what the first has left.
"""

import time
from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.constants import FRAME_BODY
from node.amqp.field_table import long, longstr
from node.amqp.properties import Properties
from tests.adversity.siege import Siege
from tests.kit.amqp_client import Channel, Connection, frame
from tests.kit.attack import announce, many, method, publish, settled
from tests.kit.node_process import NodeProcess
from tests.kit.patience import patience
from tests.kit.server_process import MIB

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]
COUNT = 50_000
BODY = bytes(1000)
WEIGHT_MIB = COUNT * (len(BODY) + 150) // MIB
"""Body, frames and Python's object for the bytes."""


def fill(connection: Connection, queue: str, count: int = COUNT) -> None:
    message = publish(1, BODY, routing_key=queue)
    for _ in range(count // 500):
        connection.send_bytes(message * 500)
    settled(connection)


def ready_count(channel: Channel, queue: str) -> int:
    count: int = channel.call(methods.QueueDeclare, queue=queue, passive=True).message_count
    return count


def take_deliveries(connection: Connection, count: int) -> None:
    """Read deliveries up to the last one's body."""
    seen = 0
    while seen < count:
        seen += connection.read_frame(60.0).type == FRAME_BODY


def test_deliveries_that_are_never_acknowledged(node: NodeProcess, siege: Begin) -> None:
    """Prefetch 0: a client may hold everything. When it vanishes all comes back, in order and redelivered.

    (consumer_timeout, 30 minutes, is what ends it: tests/conformance.)
    """
    with siege(peak_mib=WEIGHT_MIB + 24, kept_mib=WEIGHT_MIB + 24):
        for _ in range(2):
            hoard_and_vanish(node)


def hoard_and_vanish(node: NodeProcess) -> None:
    owner = Connection(node)
    channel = owner.channel(1)
    queue = channel.declare()
    fill(owner, queue)
    attacker = Connection(node)
    attacker.channel(1).consume(queue)
    take_deliveries(attacker, COUNT)
    attacker.socket.close()
    deadline = time.monotonic() + 20.0 * patience()
    while ready_count(channel, queue) < COUNT:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    content = channel.get(queue)
    assert content is not None
    assert content.method.redelivered
    channel.call(methods.QueueDelete, queue=queue)
    owner.close()


def test_a_transaction_that_is_never_committed(node: NodeProcess, siege: Begin) -> None:
    """Publishes of an uncommitted transaction go with the connection."""
    with siege(peak_mib=WEIGHT_MIB + 24, kept_mib=WEIGHT_MIB + 24):
        for _ in range(2):
            attacker = Connection(node)
            channel = attacker.channel(1)
            queue = channel.declare(exclusive=True)
            channel.call(methods.TxSelect)
            fill(attacker, queue)
            assert ready_count(channel, queue) == 0
            attacker.socket.close()


def test_acknowledgements_in_a_transaction_that_is_never_committed(node: NodeProcess, siege: Begin) -> None:
    """As long as it is open the messages belong to nobody else; then they come back."""
    with siege(peak_mib=WEIGHT_MIB + 24):
        owner = Connection(node)
        channel = owner.channel(1)
        queue = channel.declare()
        fill(owner, queue, 10_000)
        attacker = Connection(node)
        hoard = attacker.channel(1)
        hoard.call(methods.TxSelect)
        hoard.consume(queue)
        take_deliveries(attacker, 10_000)
        attacker.send_bytes(many(1, (methods.BasicAck(delivery_tag=tag) for tag in range(1, 10_001))))
        settled(attacker)
        assert ready_count(channel, queue) == 0
        attacker.socket.close()
        deadline = time.monotonic() + 20.0 * patience()
        while ready_count(channel, queue) < 10_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        channel.call(methods.QueueDelete, queue=queue)
        owner.close()


def test_acknowledgements_in_the_worst_order(node: NodeProcess, siege: Begin) -> None:
    """Every other tag first, then the rest from the last down: no order of acks is quadratic."""
    with siege(peak_mib=WEIGHT_MIB + 24):
        attacker = Connection(node)
        channel = attacker.channel(1)
        queue = channel.declare(exclusive=True)
        fill(attacker, queue, 20_000)
        channel.send(methods.BasicConsume, queue=queue, nowait=True)
        take_deliveries(attacker, 20_000)
        tags = [*range(1, 20_001, 2), *range(20_000, 0, -2)]
        attacker.send_bytes(many(1, (methods.BasicAck(delivery_tag=tag) for tag in tags)))
        settled(attacker)
        attacker.close()


def test_requeued_in_the_worst_order(node: NodeProcess, siege: Begin) -> None:
    """Every third of 6,000 goes back, then the others one by one from the first up: each finds its old place."""
    with siege(peak_mib=WEIGHT_MIB + 24):
        attacker = Connection(node)
        channel = attacker.channel(1)
        queue = channel.declare(exclusive=True)
        fill(attacker, queue, 6_000)
        channel.send(methods.BasicConsume, queue=queue, consumer_tag="c", nowait=True)
        take_deliveries(attacker, 6_000)
        channel.call(methods.BasicCancel, consumer_tag="c")
        tags = [*range(1, 6_001, 3), *range(2, 6_001, 3), *range(3, 6_001, 3)]
        nacks = (methods.BasicNack(delivery_tag=tag, multiple=False, requeue=True) for tag in tags)
        attacker.send_bytes(many(1, nacks))
        settled(attacker)
        assert ready_count(channel, queue) == 6_000
        attacker.close()


def test_routes_and_traits_that_never_repeat(node: NodeProcess, siege: Begin) -> None:
    """A connection remembers 8,192 routes of 1 KiB of its publishes and no more, whatever their properties."""
    with siege(peak_mib=8192 // 1024 * 4 + 8):
        attacker = Connection(node)
        attacker.channel(1)
        for number in range(200):
            messages = (
                publish(
                    1,
                    routing_key=f"{number}-{key:0>200}",
                    properties=Properties(expiration=f"{ttl:0>240}"),
                )
                for key in range(20)
                for ttl in range(20)
            )
            attacker.send_bytes(b"".join(messages))
        settled(attacker)
        for _ in range(4):
            for key in range(256):
                messages = (
                    publish(1, routing_key=str(key), properties=Properties(expiration=f"{ttl:0>240}"))
                    for ttl in range(256)
                )
                attacker.send_bytes(b"".join(messages))
        settled(attacker)
        attacker.close()


def test_many_direct_reply_consumers_and_requests(node: NodeProcess, siege: Begin) -> None:
    """2,000 requesters on as many channels, with 10 requests each that are answered after they left."""
    with siege(peak_mib=40):
        attacker = Connection(node)
        server = Connection(node)
        answering = server.channel(1)
        queue = answering.declare(exclusive=False)
        request = Properties(reply_to="amq.rabbitmq.reply-to")
        for number in range(1, 2001):
            opened = many(
                number,
                (
                    methods.ChannelOpen(),
                    methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True, nowait=True),
                ),
            )
            attacker.send_bytes(opened + publish(number, b"?", routing_key=queue, properties=request) * 10)
            attacker.expect(methods.ChannelOpenOk, number)
        settled(attacker, 2000)
        attacker.socket.close()
        for _ in range(20_000 // 100):
            server.send_bytes(method(1, methods.BasicGet(queue=queue, no_ack=True)) * 100)
            for _ in range(100):
                reply_to = answering.expect_content(methods.BasicGetOk).properties.reply_to
                assert reply_to is not None
                answering.publish("", reply_to, b"!")
        settled(server)
        answering.call(methods.QueueDelete, queue=queue)
        server.close()


def test_a_dead_letter_ring(node: NodeProcess, siege: Begin) -> None:
    """Two queues that expire into each other at once: amqp-behaviour §5.5 drops the message when it comes round."""
    with siege(peak_mib=32):
        attacker = Connection(node)
        channel = attacker.channel(1)
        for name, other in (("ring-a", "ring-b"), ("ring-b", "ring-a")):
            channel.declare(
                name,
                exclusive=True,
                arguments={
                    "x-message-ttl": long(0),
                    "x-dead-letter-exchange": longstr(""),
                    "x-dead-letter-routing-key": longstr(other),
                },
            )
        attacker.send_bytes(publish(1, b"round and round", routing_key="ring-a") * 10_000)
        settled(attacker)
        assert ready_count(channel, "ring-a") + ready_count(channel, "ring-b") == 0
        attacker.close()


def test_bodies_half_sent_go_with_their_connections(node: NodeProcess, siege: Begin) -> None:
    """100 connections one after the other, each with 1 MiB of a body of 4 MiB."""
    with siege(peak_mib=16):
        for _ in range(100):
            attacker = Connection(node)
            attacker.channel(1)
            attacker.send_bytes(announce(1, 4 * MIB) + frame(FRAME_BODY, 1, bytes(131064)) * 8)
            attacker.send(methods.ConnectionUpdateSecret, new_secret=b"", reason="")
            attacker.expect(methods.ConnectionUpdateSecretOk)
            attacker.socket.close()
