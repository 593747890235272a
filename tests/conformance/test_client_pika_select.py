"""An unmodified pika's SelectConnection, as in its documentation: every step a callback."""

from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ConnectionClosedByClient

from tests.kit.client_steps import TIMEOUT_S, amqp_url
from tests.kit.servers import Server


class AsyncClient:
    """The asynchronous publisher and consumer of pika's documentation, in one."""

    def __init__(self, url: str, count: int) -> None:
        self.count = count
        self.confirmed: set[int] = set()
        self.received: list[bytes] = []
        self.closed: list[Exception] = []
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.on_channel),
            on_open_error_callback=lambda _connection, error: self.on_closed(None, error),
            on_close_callback=self.on_closed,
        )
        self.connection.ioloop.call_later(TIMEOUT_S, self.give_up)

    def give_up(self) -> None:
        self.closed.append(TimeoutError())
        self.connection.ioloop.stop()

    def on_closed(self, _connection: Any, error: Exception) -> None:
        self.closed.append(error)
        self.connection.ioloop.stop()

    def on_channel(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(self.on_channel_closed)
        channel.exchange_declare("amq.direct", "direct", durable=True, callback=self.on_exchange)

    def on_exchange(self, _frame: Any) -> None:
        self.channel.queue_declare("", exclusive=True, callback=self.on_queue)

    def on_queue(self, frame: Any) -> None:
        self.queue = frame.method.queue
        self.channel.queue_bind(self.queue, "amq.direct", self.queue, callback=self.on_bound)

    def on_bound(self, _frame: Any) -> None:
        self.channel.basic_qos(prefetch_count=10, callback=self.on_qos)

    def on_qos(self, _frame: Any) -> None:
        self.channel.basic_consume(self.queue, self.on_message)
        self.channel.confirm_delivery(self.on_confirm, callback=self.publish)

    def publish(self, _frame: Any) -> None:
        for number in range(self.count):
            self.channel.basic_publish("amq.direct", self.queue, b"%d" % number)

    def on_confirm(self, frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        upto = frame.method.delivery_tag
        self.confirmed |= set(range(1, upto + 1)) if frame.method.multiple else {upto}
        self.finish_when_done()

    def on_message(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.received.append(body)
        channel.basic_ack(method.delivery_tag)
        self.finish_when_done()

    def finish_when_done(self) -> None:
        if len(self.received) == len(self.confirmed) == self.count:
            self.done()

    def done(self) -> None:
        self.connection.close()

    def on_channel_closed(self, _channel: Any, error: Exception) -> None:
        """Nothing; the connection's end ends the loop."""


def test_select_connection(server: Server) -> None:
    client = AsyncClient(amqp_url(server), 500)
    client.connection.ioloop.start()
    assert [type(error) for error in client.closed] == [ConnectionClosedByClient]
    assert client.received == [b"%d" % number for number in range(500)]
    assert client.confirmed == set(range(1, 501))


class ClumsyClient(AsyncClient):
    """Ends its channel by an error and its connection by another."""

    channel_errors: list[Exception]

    def done(self) -> None:
        self.channel_errors = []
        self.channel.queue_declare("no-such-queue", passive=True)

    def on_channel_closed(self, _channel: Any, error: Exception) -> None:
        self.channel_errors.append(error)
        self.connection.channel(
            on_open_callback=lambda channel: channel.exchange_declare("x", "no-such-type")
        )


def test_select_connection_errors(server: Server) -> None:
    client = ClumsyClient(amqp_url(server), 1)
    client.connection.ioloop.start()
    assert [(type(error), *error.args) for error in (*client.channel_errors, *client.closed)] == [
        (ChannelClosedByBroker, 404, "NOT_FOUND - no queue 'no-such-queue' in vhost '/'"),
        (ConnectionClosedByBroker, 503, "COMMAND_INVALID - unknown exchange type 'no-such-type'"),
    ]
