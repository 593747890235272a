"""docs/delayed.md: delayed exchanges as pika uses them. RabbitMQ needs an archived plug-in for them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.conformance.pika_steps import blocking_connections
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ has no delayed exchanges without a plug-in")

DELAYS_MS = (500, 100, 300, 200, 100, 400)


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    with blocking_connections(server) as make:
        yield make().channel()


@pytest.fixture
def exchange(channel: Any, name: Callable[[str], str]) -> Iterator[str]:
    """A delayed exchange that routes by direct."""
    made = name("delayed")
    channel.exchange_declare(made, "x-delayed-message", arguments={"x-delayed-type": "direct"})
    yield made
    channel.connection.channel().exchange_delete(made)  # the test may have closed the first one


@pytest.fixture
def queue(channel: Any, exchange: str) -> str:
    """A queue that is bound to it by the key k."""
    declared: str = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(declared, exchange, "k")
    return declared


def publish(channel: Any, exchange: str, delay: object, body: bytes) -> None:
    headers = {} if delay is None else {"x-delay": delay}
    channel.basic_publish(exchange, "k", body, pika.BasicProperties(headers=headers, delivery_mode=2))


def consumed(channel: Any, queue: str, count: int) -> list[tuple[bytes, Any, float]]:
    """Body, properties and time of so many messages."""
    found: list[tuple[bytes, Any, float]] = []
    for _, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=TIMEOUT_S):
        assert body is not None, f"only {len(found)} of {count}"
        found.append((body, properties, time.monotonic()))
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.mark.parametrize("kind", [int, str])
def test_messages_come_in_the_order_of_their_delays_and_not_before(
    channel: Any, exchange: str, queue: str, kind: Callable[[int], object]
) -> None:
    """Numbers and texts of digits alike; all are confirmed at once."""
    channel.confirm_delivery()
    began = time.monotonic()
    for delay in DELAYS_MS:
        publish(channel, exchange, kind(delay), b"%d" % delay)
    found = consumed(channel, queue, len(DELAYS_MS))
    assert [int(body) for body, _, _ in found] == sorted(DELAYS_MS)
    for body, properties, at in found:
        assert properties.headers == {"x-delay": -int(body)}
        assert at - began >= int(body) / 1000, "early"


def test_without_a_delay_they_come_at_once(channel: Any, exchange: str, queue: str) -> None:
    for delay in (60_000, None, 0, -5, "never"):
        publish(channel, exchange, delay, repr(delay).encode())
    found = consumed(channel, queue, 4)
    assert [body for body, _, _ in found] == [b"None", b"0", b"-5", b"'never'"]


def test_the_routing_type_is_required(channel: Any, name: Callable[[str], str]) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.exchange_declare(name("x"), "x-delayed-message")
    assert caught.value.reply_code == 406


def test_the_queue_where_they_wait_is_not_for_clients(channel: Any, exchange: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_get(f"amq.delayed.{exchange}")
    assert caught.value.reply_code == 403
