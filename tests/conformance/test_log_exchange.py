"""management §6.3: lines of the log as messages, with `log.exchange = true`."""

import logging
import re
import time
from collections.abc import Callable

import pytest

from node.amqp.method_codec import decode_method
from node.amqp.methods import ExchangeDeclare, ExchangeDeclareOk, QueueBind
from node.amqp.properties import Properties
from tests.kit.amqp_client import Connection
from tests.kit.servers import Server

LINE = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\+00:00 \[info\] <\S+> (.*)\n")


def await_exchange(connection: Connection) -> None:
    """RabbitMQ declares it a moment after it has started."""
    for number in range(100, 300):
        connection.channel(number)
        connection.send(ExchangeDeclare, number, exchange="amq.rabbitmq.log", passive=True)
        if isinstance(decode_method(connection.next_frame(number).payload), ExchangeDeclareOk):
            return
        time.sleep(0.05)
    raise AssertionError("there is no exchange amq.rabbitmq.log")


@pytest.mark.slow
def test_lines_are_published(
    server_with: Callable[..., Server],
    connect: Callable[..., Connection],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)  # Fluffle's node is in this process, whose log is pytest's
    server = server_with({"log.exchange": "true", "log.exchange.level": "info"})
    connection = connect(to=server)
    await_exchange(connection)
    channel = connection.channel(1)
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange="amq.rabbitmq.log", routing_key="info")
    client = connect(to=server)
    address = "{}:{}".format(*client.socket.getsockname()[:2]).encode()
    texts = []
    for _ in range(2):
        line = channel.wait_get(queue)
        assert (line.method.exchange, line.method.routing_key) == ("amq.rabbitmq.log", "info")
        node = line.headers["node"]
        timestamp = line.properties.timestamp
        assert timestamp is not None
        assert line.properties == Properties(
            content_type="text/plain", headers={"node": node}, timestamp=timestamp
        )
        found = LINE.fullmatch(line.body)
        assert found is not None, line.body
        texts.append(found[1])
    assert texts[0].startswith(b"accepting AMQP connection ")
    assert texts[1].endswith(b"user 'guest' authenticated and granted access to vhost '/'")
    assert all(address in text for text in texts)
