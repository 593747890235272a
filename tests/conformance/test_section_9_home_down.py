"""amqp-behaviour §9.1, §9.7: what clients of the other nodes see when a queue's home node ends, and when it returns.

The home node is the second of three; it ends by `stop_app`, by SIGTERM and by kill -9.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from node.amqp import methods
from node.amqp.field_table import Table, boolean, longstr, table
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicNack,
    BasicQos,
    BasicReturn,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
)
from tests.conformance.cluster_home_rows import ROWS, durable, names, row
from tests.conformance.cluster_story import (
    PERSISTENT,
    TRANSIENT,
    Rows,
    Story,
    drain,
    home_is_down,
    publish,
)
from tests.conformance.conftest import _SharedCluster
from tests.conformance.entities import queue_exists
from tests.kit.amqp_client import Connection

pytestmark = pytest.mark.slow

TAKES_CANCEL: Final[Table] = {"capabilities": table({"consumer_cancel_notify": boolean(True)})}


@pytest.fixture(scope="module", params=["stop_app", "sigterm", "kill"])
def played(request: pytest.FixtureRequest, shared_cluster: _SharedCluster) -> Iterator[Rows]:
    """The story with all rows, at its end."""
    story = Story(shared_cluster.healed(), request.param)
    rows = Rows(story, ROWS)
    rows.play()
    yield rows
    story.close()


@row
def transient_queue_is_gone(story: Story) -> Iterator[None]:
    """§9.1 row 3: with its bindings and messages; a redeclare makes a new one, where the client is."""
    queue, key = next(names), next(names)
    channel = story.channel(story.home)
    channel.declare(queue)
    channel.call(QueueBind, queue=queue, exchange="amq.direct", routing_key=key)
    publish(story.channel(), queue, b"lost", b"lost")
    yield
    channel = story.channel()
    assert not queue_exists(channel, queue)
    channel.publish("amq.direct", key, b"unroutable", mandatory=True)
    channel.expect_content(BasicReturn)
    assert channel.call(QueueDeclare, queue=queue).message_count == 0
    assert story.near.home(queue) == story.near.name
    channel.publish("amq.direct", key, b"unroutable", mandatory=True)
    channel.expect_content(BasicReturn)
    publish(channel, queue, b"new")
    assert [content.body for content in drain(channel, queue)] == [b"new"]
    publish(channel, queue, b"kept")
    yield
    assert story.home.home(queue) == story.near.name
    assert [content.body for content in drain(story.channel(story.home), queue)] == [b"kept"]


@row
def transient_queue_of_a_survivor_stays(story: Story) -> Iterator[None]:
    """§9.1 row 3: only those of that node go; declared by a client of the node that ends."""
    queue = next(names)
    locator = {"x-queue-master-locator": longstr("client-local")}
    story.channel(story.far).declare(queue, arguments=locator)
    publish(story.channel(story.home), queue, b"stays")
    yield
    assert [content.body for content in drain(story.channel(), queue)] == [b"stays"]
    yield
    assert queue_exists(story.channel(story.home), queue)


@row
def durable_auto_delete_queue(story: Story) -> Iterator[None]:
    """§9.1 rows 1 and 3: what is durable waits for its home, auto-delete or not."""
    queue = durable(story, auto_delete=True)
    yield
    channel = story.channel()
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_close(404, home_is_down(story, queue), QueueDeclare)
    yield
    assert queue_exists(story.channel(), queue)


@row
def auto_delete_queue_is_gone(story: Story) -> Iterator[None]:
    """§9.1 row 3: one that has had a consumer, too."""
    queue = next(names)
    story.channel(story.home).declare(queue, auto_delete=True)
    story.channel().consume(queue)
    yield
    assert not queue_exists(story.channel(), queue)
    yield
    assert not queue_exists(story.channel(), queue)


@row
def exclusive_queue_is_gone(story: Story) -> Iterator[None]:
    """§9.1 row 4, reliability §2.2 clean_up_exclusive_queues; on all nodes, also once its node is back."""
    queue = next(names)
    story.channel(story.home).declare(queue, exclusive=True)
    yield
    assert not queue_exists(story.channel(), queue)
    assert story.channel(story.far).declare(queue, exclusive=True) == queue
    story.channel(story.far)
    yield
    channel = story.channel(story.home)
    channel.send(QueueDeclare, queue=queue, passive=True)
    assert channel.expect(methods.ChannelClose).reply_code == 405  # the new one, of a client of `far`


@row
def durable_exclusive_queue_is_gone(story: Story) -> Iterator[None]:
    """§9.1 row 4: its owner is gone for good."""
    queue = next(names)
    story.channel(story.home).declare(queue, durable=True, exclusive=True)
    yield
    assert not queue_exists(story.channel(), queue)
    yield
    for node in story.cluster.nodes:
        assert not queue_exists(story.channel(node), queue)


@row
def consumers_are_cancelled(story: Story) -> Iterator[None]:
    """§9.1 row 5 and traps: each on its channel, of durable and transient queues; the channel stays open."""
    kept, transient, local = durable(story), next(names), next(names)
    story.channel(story.home).declare(transient)
    channel = story.channel(client_properties=TAKES_CANCEL)
    channel.declare(local)
    other = channel.connection.channel(2)
    for queue, tag in ((kept, "k1"), (kept, "k2"), (transient, "t1"), (local, "l1")):
        channel.consume(queue, consumer_tag=tag)
    other.consume(kept, consumer_tag="k3", no_ack=True)
    yield
    assert {channel.expect(BasicCancel).consumer_tag for _ in range(3)} == {"k1", "k2", "t1"}
    assert other.expect(BasicCancel).consumer_tag == "k3"
    channel.publish("", local, b"still here")
    delivered = channel.deliver()
    assert (delivered.method.consumer_tag, delivered.body) == ("l1", b"still here")
    other.sync()
    yield
    publish(story.channel(), kept, b"for nobody")
    assert channel.call(QueueDeclare, queue=kept, passive=True).consumer_count == 0
    other.sync()
    channel.consume(kept, consumer_tag="k1")
    assert channel.deliver().body == b"for nobody"


@row
def consumers_without_the_capability_hear_nothing(story: Story) -> Iterator[None]:
    """§9.1 row 5 with §4.7."""
    channel = story.channel()
    channel.consume(durable(story), consumer_tag="c")
    yield
    channel.expect_nothing(0.3)
    channel.sync()


@row
def cancel_of_a_lost_consumer_is_answered(story: Story) -> Iterator[None]:
    """§9.1 row 5: the tag may be used again."""
    channel = story.channel(client_properties=TAKES_CANCEL)
    local = channel.declare(next(names))
    channel.consume(durable(story), consumer_tag="c")
    yield
    channel.expect(BasicCancel)
    channel.call(BasicCancel, consumer_tag="c")
    channel.consume(local, consumer_tag="c")


@row
def settlements_of_lost_tags_are_accepted(story: Story) -> Iterator[None]:
    """§9.1 row 6: ack, nack, reject, one by one and several at once with those of a queue that lives."""
    lost, local = durable(story), next(names)
    channel = story.channel()
    channel.declare(local)
    publish(channel, lost, b"1", b"2", b"3", b"4")
    publish(channel, local, b"5", b"6")
    for number in range(1, 5):
        assert channel.get(lost, no_ack=False).method.delivery_tag == number  # type: ignore[union-attr]
    for number in (5, 6):
        assert channel.get(local, no_ack=False).method.delivery_tag == number  # type: ignore[union-attr]
    yield
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicNack, delivery_tag=2)
    channel.send(methods.BasicReject, delivery_tag=3, requeue=True)
    channel.sync()
    channel.send(BasicAck, delivery_tag=5, multiple=True)
    channel.sync()
    channel.send(BasicNack, delivery_tag=6, requeue=True)
    channel.sync()
    assert [content.body for content in drain(channel, local)] == [b"6"]
    yield
    back = story.channel()
    assert [content.body for content in drain(back, lost)] == [b"1", b"2", b"3", b"4"]


@row
def a_lost_tag_is_settled_once(story: Story) -> Iterator[None]:
    """§9.1 row 6 with §4.10: the second time it is unknown."""
    lost = durable(story)
    channel = story.channel()
    publish(channel, lost, b"1")
    channel.get(lost, no_ack=False)
    yield
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicAck, delivery_tag=1)
    channel.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", BasicAck)


@row
def prefetch_of_the_channel_is_freed_by_the_ack(story: Story) -> Iterator[None]:
    """§9.1 row 6 with §4.9: what is lost counts in the channel's limit until the client settles it."""
    lost, local = durable(story), next(names)
    channel = story.channel()
    channel.declare(local)
    channel.call(BasicQos, prefetch_count=1, global_=True)
    publish(channel, lost, b"lost")
    channel.consume(lost)
    delivered = channel.deliver()
    channel.consume(local)
    publish(channel, local, b"local")
    yield
    channel.send(BasicAck, delivery_tag=delivered.method.delivery_tag)
    assert channel.deliver().body == b"local"


@row
def prefetch_of_a_consumer_elsewhere_is_its_own(story: Story) -> Iterator[None]:
    """§9.1: a consumer of a queue that lives goes on at its pace."""
    lost, local = durable(story), next(names)
    channel = story.channel()
    channel.declare(local)
    channel.call(BasicQos, prefetch_count=1)
    channel.consume(lost)
    channel.consume(local)
    publish(channel, lost, b"lost")
    channel.deliver()
    publish(channel, local, b"1", b"2")
    assert channel.deliver().body == b"1"
    yield
    channel.expect_nothing(0.1)
    channel.send(BasicAck, delivery_tag=2)
    assert channel.deliver().body == b"2"


@row
def messages_and_bindings_return(story: Story) -> Iterator[None]:
    """§9.1 row 8: persistent messages in order and the bindings, also one to an exchange of the others."""
    queue, exchange, key = durable(story), next(names), next(names)
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange=exchange, type="topic", durable=True)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="a.#")
    channel.call(QueueBind, queue=queue, exchange="amq.direct", routing_key=key)
    publish(channel, queue, *(b"%d" % number for number in range(100)))
    publish(channel, queue, b"transient", properties=TRANSIENT)
    yield
    yield
    for node in story.cluster.nodes:
        publish(story.channel(node), "a.b", b"by topic", exchange=exchange)
        publish(story.channel(node), key, b"by key", exchange="amq.direct")
    bodies = [content.body for content in drain(story.channel(), queue)]
    expected = [b"%d" % number for number in range(100)] + [b"by topic", b"by key"] * 3
    if story.end == "kill":
        assert bodies == expected
    else:
        assert [body for body in bodies if body != b"transient"] == expected


@row
def unacked_are_ready_and_redelivered(story: Story) -> Iterator[None]:
    """§9.1 row 8: those delivered, those got, those waiting; in their places."""
    queue = durable(story)
    channel = story.channel()
    publish(channel, queue, *(b"%d" % number for number in range(1, 7)))
    channel.call(BasicQos, prefetch_count=2)
    channel.consume(queue, consumer_tag="c")
    assert [channel.deliver().body for _ in range(2)] == [b"1", b"2"]
    getter = story.channel(story.far)
    got = getter.get(queue, no_ack=False)
    assert got
    assert got.body == b"3"
    yield
    yield
    contents = drain(story.channel(), queue)
    assert [content.body for content in contents] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [content.method.redelivered for content in contents[:3]] == [True] * 3


@row
def acked_before_stay_away(story: Story) -> Iterator[None]:
    """§9.1 row 8: what another node's client has acknowledged some time before the end does not come again."""
    queue = durable(story)
    channel = story.channel()
    publish(channel, queue, b"1", b"2", b"3")
    channel.consume(queue)
    assert [channel.deliver().body for _ in range(3)] == [b"1", b"2", b"3"]
    channel.send(BasicAck, delivery_tag=2, multiple=True)
    channel.sync()
    yield
    yield
    assert [content.body for content in drain(story.channel(), queue)] == [b"3"]


@row
def bindings_removed_meanwhile_stay_away(story: Story) -> Iterator[None]:
    """§9.1 row 8: those to an exchange that was deleted while the node was away."""
    queue, exchange = durable(story), next(names)
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange=exchange, type="direct", durable=True)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="key")
    yield
    story.channel().call(ExchangeDelete, exchange=exchange)
    yield
    channel = story.channel(story.home)
    channel.call(ExchangeDeclare, exchange=exchange, type="direct", durable=True)
    channel.publish(exchange, "key", b"to nobody", mandatory=True)
    channel.expect_content(BasicReturn)


@row
def changes_of_the_others_reach_it(story: Story) -> Iterator[None]:
    """§9.7 row 1: what was declared and bound while it was away is there when it returns."""
    queue, exchange, inner = next(names), next(names), next(names)
    yield
    channel = story.channel(story.far)
    channel.declare(queue, durable=True)
    for each in (exchange, inner):
        channel.call(ExchangeDeclare, exchange=each, type="fanout", durable=True)
    channel.call(ExchangeBind, source=exchange, destination=inner)
    channel.call(QueueBind, queue=queue, exchange=inner)
    yield
    channel = story.channel(story.home)
    publish(channel, "", b"through", exchange=exchange)
    assert [content.body for content in drain(channel, queue)] == [b"through"]


@row
def transient_exchange_stays(story: Story) -> Iterator[None]:
    """§9.7 row 1: an exchange lives nowhere, so it stays when the node of its client ends."""
    exchange, queue = next(names), next(names)
    story.channel(story.home).call(ExchangeDeclare, exchange=exchange, type="direct")
    yield
    channel = story.channel()
    channel.declare(queue)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="key")
    yield
    channel = story.channel(story.home)
    publish(channel, "key", b"still", exchange=exchange)
    assert [content.body for content in drain(channel, queue)] == [b"still"]


@row
def its_own_clients_are_closed(story: Story) -> Iterator[None]:
    """§9.7 row 3: 320 at a stop; the end of the connection at a kill. New ones are refused."""
    connection = story.channel(story.home).connection
    yield
    if story.end == "kill":
        connection.expect_end()
    else:
        text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
        close = connection.expect(ConnectionClose)
        assert (close.reply_code, close.reply_text) == (320, text)
    with pytest.raises(ConnectionRefusedError):
        Connection(story.home)


@row
def channels_of_the_others_work(story: Story) -> Iterator[None]:
    """§9.1: a channel that has used the lost queue goes on with others."""
    lost, local = durable(story), next(names)
    channel = story.channel()
    channel.call(ConfirmSelect)
    channel.publish("", lost, b"1")
    assert channel.expect(BasicAck).delivery_tag == 1
    yield
    channel.call(QueueDeclare, queue=local, durable=True)
    channel.publish("", local, b"2", PERSISTENT)
    assert channel.expect(BasicAck).delivery_tag == 2
    channel.send(QueueDeclare, queue=lost, passive=True)
    channel.expect_close(404, home_is_down(story, lost), QueueDeclare)
    channel.call(ChannelOpen)
    assert [content.body for content in drain(channel, local)] == [b"2"]
    yield
    publish(channel, lost, b"3")
    assert drain(channel, lost)[-1].body == b"3"


@pytest.mark.parametrize("name", ROWS)
def test_home_down(played: Rows, name: str) -> None:
    """The row, in all its stages."""
    played.check(name)
