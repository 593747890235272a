"""amqp-behaviour §9.1 row 7, §9.6 "a frozen node": publishes that are on their way when the home stops answering."""

import contextlib
import time
from collections.abc import Callable, Iterable

import pytest

from node.amqp.constants import FRAME_METHOD
from node.amqp.method_codec import decode_method
from node.amqp.methods import BasicAck, BasicCancel, BasicNack, ConfirmSelect
from tests.conformance.cluster_story import PERSISTENT, drain
from tests.conformance.test_section_9_home_down import TAKES_CANCEL
from tests.kit.amqp_client import Channel, ConnectionEnded, NothingArrived
from tests.kit.server_cluster import Cluster, is_rabbitmq

pytestmark = pytest.mark.slow

On = Callable[..., Channel]
Name = Callable[[str], str]

ENDS_WITHIN_S = 20.0


def outcome(channel: Channel, count: int, acked: Iterable[int] = ()) -> dict[int, str]:
    """Return how the publishes 1 to `count` were settled, one word for each.   acked: what was said already."""
    said: dict[int, str] = dict.fromkeys(acked, "ack")
    while len(said) < count:
        frame = channel.connection.next_frame(1, ENDS_WITHIN_S)
        assert frame.type == FRAME_METHOD, frame
        method = decode_method(frame.payload)
        assert isinstance(method, BasicAck | BasicNack), method
        word = "ack" if isinstance(method, BasicAck) else "nack"
        tags = range(1, method.delivery_tag + 1) if method.multiple else [method.delivery_tag]
        for tag in tags:
            if not method.multiple:
                assert tag not in said, f"{tag} was {said[tag]}ed, now {word}ed"
            said.setdefault(tag, word)
    return said


def test_a_freeze_that_ends(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.6: no confirm while it lasts; a short one ends with acks and loses nothing."""
    queue = on(shaken_cluster[1]).declare(name("q"), durable=True)
    publisher = on(shaken_cluster[0])
    publisher.call(ConfirmSelect)
    shaken_cluster[1].freeze()
    for number in range(50):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    with pytest.raises(NothingArrived):
        publisher.expect(BasicAck, timeout=0.4)
    shaken_cluster[1].thaw()
    assert set(outcome(publisher, 50).values()) == {"ack"}
    assert [content.body for content in drain(on(shaken_cluster[2]), queue)] == [b"%d" % n for n in range(50)]


def test_a_freeze_that_ends_in_a_kill(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """§9.1 row 7: what is in flight is nacked, never acked; consumers are cancelled."""
    queue = on(shaken_cluster[1]).declare(name("q"), durable=True)
    publisher, consumer = on(shaken_cluster[0]), on(shaken_cluster[2], client_properties=TAKES_CANCEL)
    publisher.call(ConfirmSelect)
    consumer.consume(queue, consumer_tag="c")
    shaken_cluster[1].freeze()
    for number in range(50):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    time.sleep(0.5)
    shaken_cluster[1].kill()
    assert set(outcome(publisher, 50).values()) == {"nack"}
    assert consumer.expect(BasicCancel, timeout=ENDS_WITHIN_S).consumer_tag == "c"


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ waits net_ticktime, 60 s and more")
def test_a_freeze_that_lasts(shaken_cluster: Cluster, on: On, name: Name) -> None:
    """reliability §4.2: the lease runs out, so the node counts as down; when it thaws it comes back as a new one."""
    queue = on(shaken_cluster[1]).declare(name("q"), durable=True)
    publisher, consumer = on(shaken_cluster[0]), on(shaken_cluster[2], client_properties=TAKES_CANCEL)
    there = on(shaken_cluster[1])
    publisher.call(ConfirmSelect)
    consumer.consume(queue, consumer_tag="c")
    shaken_cluster[1].freeze()
    for number in range(50):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    assert set(outcome(publisher, 50).values()) == {"nack"}
    assert consumer.expect(BasicCancel, timeout=ENDS_WITHIN_S).consumer_tag == "c"
    shaken_cluster[1].thaw()
    with contextlib.suppress(ConnectionEnded):  # it may be gone before our close-ok
        there.connection.expect_end(ENDS_WITHIN_S, may_close=True)
    shaken_cluster[1].await_ready()
    shaken_cluster.await_members()
    publisher.publish("", queue, b"after", PERSISTENT)
    assert publisher.expect(BasicAck).delivery_tag == 51
    assert drain(on(shaken_cluster[2]), queue)[-1].body == b"after"


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_stream_of_publishes(shaken_cluster: Cluster, on: On, name: Name, end: str) -> None:
    """§9.1 row 7: under load, each publish has one answer, and what was acked before the end is kept."""
    queue = on(shaken_cluster[1]).declare(name("q"), durable=True)
    publisher = on(shaken_cluster[0])
    publisher.call(ConfirmSelect)
    for number in range(1, 2001):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    first = publisher.expect(BasicAck)
    acked_before = set(range(1, first.delivery_tag + 1)) if first.multiple else {first.delivery_tag}
    getattr(shaken_cluster[1], end)()
    for number in range(2001, 3001):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    said = outcome(publisher, 3000, acked_before)
    shaken_cluster.heal()
    kept = [int(content.body) for content in drain(on(shaken_cluster[2]), queue)]
    assert kept == sorted(set(kept))
    assert acked_before <= set(kept)
    assert set(said.values()) <= {"ack", "nack"}
