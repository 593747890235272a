"""Clients that ask and do not read what they are told (docs/limits.md, "Output").

A peak of `UNREAD_MIB` is: 16 MiB in the transport's buffer at which we stop reading, and 16 MiB that one turn may
add, twice while it is joined for writing. The sockets' buffers are small here, so that the kernel hides little of
what is unread.
"""

from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.field_table import boolean, long, table
from node.amqp.properties import Properties
from tests.adversity.siege import Siege
from tests.kit.amqp_client import Connection
from tests.kit.attack import deaf, flood, many, method, publish, settled
from tests.kit.node_process import NodeProcess
from tests.kit.server_process import MIB

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]
UNREAD_MIB = 16 + 2 * 16
SECONDS = 2.0
ENDS_S = 120.0
"""A flood that goes on until it is enough has been sent by then, on a busy machine too."""


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    """A node whose sockets have the smallest send buffer."""
    return start_node({"tcp_listen_options.sndbuf": "4096"})


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("declares", methods.QueueDeclare(queue="asked", passive=True)),
        ("gets", methods.BasicGet(queue="asked", no_ack=True)),
        ("purges", methods.QueuePurge(queue="asked")),
        ("consumes", methods.BasicConsume(queue="asked", nowait=False)),
    ],
)
def test_requests_without_reading_the_replies(
    node: NodeProcess, siege: Begin, name: str, asked: methods.Method
) -> None:
    """Pipelined without end: we stop reading, and the client is alone with that. (A consumer costs 1 KiB besides.)"""
    with siege(peak_mib=UNREAD_MIB + (256 if name == "consumes" else 0)):
        attacker = deaf(node)
        attacker.send_bytes(method(1, methods.QueueDeclare(queue="asked", exclusive=True)))
        flood(attacker.socket, method(1, asked) * 5_000, seconds=SECONDS)
        attacker.socket.close()


def test_a_large_message_got_again_and_again_without_reading(node: NodeProcess, siege: Begin) -> None:
    """basic.get and a nack that puts it back: each octet sent asks for some 20,000."""
    with siege(peak_mib=UNREAD_MIB + 8):
        attacker = deaf(node)
        attacker.send_bytes(method(1, methods.QueueDeclare(queue="large", exclusive=True)))
        attacker.publish(1, "", "large", bytes(MIB))
        cycle = (
            methods.BasicGet(queue="large"),
            methods.BasicNack(delivery_tag=0, multiple=True, requeue=True),
        )
        flood(attacker.socket, many(1, cycle) * 1000, seconds=SECONDS)
        attacker.socket.close()


@pytest.mark.parametrize("body_bytes", [1000, 130_000])
def test_mandatory_and_unroutable_without_reading_the_returns(
    node: NodeProcess, siege: Begin, body_bytes: int
) -> None:
    """Each publish comes back whole."""
    with siege(peak_mib=UNREAD_MIB):
        attacker = deaf(node)
        message = publish(1, bytes(body_bytes), routing_key="nowhere", mandatory=True)
        flood(attacker.socket, message * (MIB // len(message)), seconds=SECONDS)
        attacker.socket.close()


def test_confirms_that_are_not_read(node: NodeProcess, siege: Begin) -> None:
    """A confirm for each read of publishes, and unread: bounded by the time it takes to send so many."""
    with siege(peak_mib=UNREAD_MIB):
        attacker = deaf(node)
        attacker.send_bytes(method(1, methods.ConfirmSelect(nowait=True)))
        message = publish(1, routing_key="nowhere")
        flood(attacker.socket, message * 20_000, seconds=SECONDS)
        attacker.socket.close()


def test_channel_errors_that_are_not_read(node: NodeProcess, siege: Begin) -> None:
    """A channel.close for each three methods, and a log line: the log's queue drops what the disk is too slow for."""
    with siege(peak_mib=UNREAD_MIB + 32):
        attacker = deaf(node)
        cycle = (
            methods.QueueDeclare(queue="missing" * 30, passive=True),
            methods.ChannelCloseOk(),
            methods.ChannelOpen(),
        )
        flood(attacker.socket, many(1, cycle) * 2_000, seconds=SECONDS)
        attacker.socket.close()


def test_a_slow_reader_with_a_fast_publisher(node: NodeProcess, siege: Begin) -> None:
    """Messages that a consumer does not read wait in its queue, where max-length bounds them: 10,000 × 1 KiB here.

    Of the connection's own there is at most what was written last: 1 MiB in the transport and 512 KiB a turn.
    """
    with siege(peak_mib=10 * 2 + 8):
        slow = deaf(node)
        declare = methods.QueueDeclare(queue="slow", arguments={"x-max-length": long(10_000)})
        slow.send_bytes(
            method(1, declare) + method(1, methods.BasicConsume(queue="slow", no_ack=True, nowait=True))
        )
        publisher = Connection(node)
        channel = publisher.channel(1)
        flood(publisher.socket, publish(1, bytes(1024), routing_key="slow") * 200, seconds=SECONDS)
        settled(publisher)
        assert channel.call(methods.QueueDelete, queue="slow").message_count <= 10_000
        slow.socket.close()
        publisher.close()


def test_direct_replies_to_a_requester_that_does_not_read(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §4.12: beyond 16 MiB unread replies are dropped, and the replier goes on."""
    with siege(peak_mib=UNREAD_MIB + 8):
        requester = Connection(node)
        asking = requester.channel(1)
        asking.consume("amq.rabbitmq.reply-to", no_ack=True)
        replier = Connection(node)
        queue = replier.channel(1).declare(exclusive=False)
        asking.publish("", queue, b"request", Properties(reply_to="amq.rabbitmq.reply-to"))
        answering = replier.channel(2)
        reply_to = answering.wait_get(queue).properties.reply_to
        assert reply_to is not None
        # More than is kept for the requester and fits into sockets.
        enough = (UNREAD_MIB + 8) * MIB
        replies = publish(2, bytes(1000), routing_key=reply_to) * 500
        sent = flood(replier.socket, replies, seconds=ENDS_S, most=enough)
        settled(replier, 2)
        assert sent >= enough, "the replier was held up"
        answering.call(methods.QueueDelete, queue=queue)
        requester.socket.close()
        replier.close()


def test_cancels_that_are_not_read(node: NodeProcess, siege: Begin) -> None:
    """basic.cancel for 20,000 consumers of one connection whose queue is deleted by another."""
    with siege(peak_mib=64):
        owner = Connection(node).channel(1)
        queue = owner.declare()
        capabilities = {"capabilities": table({"consumer_cancel_notify": boolean(True)})}
        attacker = Connection(node, client_properties=capabilities)
        attacker.channel(1)
        consume = (
            methods.BasicConsume(queue=queue, consumer_tag=f"{number:0200}", nowait=True)
            for number in range(20_000)
        )
        attacker.send_bytes(many(1, consume))
        settled(attacker)
        owner.call(methods.QueueDelete, queue=queue)
        attacker.socket.close()
        owner.connection.close()
