"""Federated queues, whatever is upstream and whatever is downstream."""

import pytest

from node.amqp import methods as m
from node.amqp.field_table import Field, longstr
from tests.conformance.federation.conftest import Pair
from tests.conformance.federation.place import Place
from tests.kit.patience import wait_until

pytestmark = pytest.mark.slow


def federate(up: Place, down: Place, queue: str, **upstream: object) -> None:
    """Federate a queue, and wait for its link."""
    down.queue(queue)
    down.set_upstream(queue, up.uri, **upstream)
    down.federate(f"^{queue}$", queue, queue)
    down.await_links()


def test_messages_move_where_a_consumer_is(pair: Pair) -> None:
    """Without a consumer nothing moves; with one all messages come, with the same headers in all directions."""
    up, down = pair
    federate(up, down, "move-q")
    up.publish("", "move-q", *(str(number).encode() for number in range(20)))
    assert (up.count("move-q"), down.count("move-q")) == (20, 0)
    with down.channel() as channel:
        channel.call(m.BasicConsume, queue="move-q", consumer_tag="c", no_ack=True)
        found = [channel.deliver() for _ in range(20)]
    assert [each.body for each in found] == [str(number).encode() for number in range(20)]
    headers = found[0].headers
    assert headers["x-original-exchange"] == longstr("")
    assert headers["x-original-routing-key"] == longstr("move-q")
    (entry,) = headers["x-received-from"].value
    assert list(entry.value.items()) == [
        ("uri", longstr(up.uri)),
        ("queue", longstr("move-q")),
        ("redelivered", Field("t", False)),
        ("visit-count", Field("l", 1)),
    ]
    wait_until(lambda: up.count("move-q") == 0)


def test_local_consumer_goes_first(pair: Pair) -> None:
    """A consumer upstream that can take messages gets them before the link does."""
    up, down = pair
    federate(up, down, "first-q")
    with up.channel() as here, down.channel() as there:
        here.call(m.BasicConsume, queue="first-q", consumer_tag="local", no_ack=True)
        there.call(m.BasicConsume, queue="first-q", consumer_tag="far", no_ack=True)
        up.publish("", "first-q", *(str(number).encode() for number in range(10)))
        assert [here.deliver().body for _ in range(10)] == [str(number).encode() for number in range(10)]
        there.expect_nothing()


def test_all_come_over_cuts(pair: Pair) -> None:
    """With acknowledgements a consumer gets every message, whatever happens to the link's connections."""
    up, down = pair
    federate(up, down, "over-q", reconnect_delay=1, prefetch_count=10)
    with down.channel() as channel:
        channel.call(m.BasicQos, prefetch_count=5)
        channel.call(m.BasicConsume, queue="over-q", consumer_tag="c")
        seen: set[bytes] = set()
        wanted = {f"{round_}-{number}".encode() for round_ in range(3) for number in range(20)}
        for round_ in range(3):
            up.publish("", "over-q", *(f"{round_}-{number}".encode() for number in range(20)))
            up.admin.close_all_connections("a cut")
        while seen != wanted:
            content = channel.deliver(60.0)
            seen.add(content.body)
            channel.send(m.BasicAck, delivery_tag=content.method.delivery_tag)
