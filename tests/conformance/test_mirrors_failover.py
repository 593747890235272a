"""amqp-behaviour §9.3 to §9.5: what clients see of mirrored queues when the master's node ends, and when it returns.

The master is on the second of three nodes, all mirrors are synchronised; it ends by `stop_app`, SIGTERM, kill -9.
"""

import itertools
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

from node.amqp import methods
from node.amqp.field_table import Table, boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicNack,
    BasicQos,
    BasicReject,
    ConfirmSelect,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.conformance.cluster_story import PERSISTENT, TRANSIENT, Row, Rows, Story, drain, publish
from tests.conformance.conftest import _SharedCluster
from tests.conformance.death_steps import deaths, reject
from tests.conformance.entities import queue_exists
from tests.conformance.test_section_9_home_down import TAKES_CANCEL
from tests.kit.amqp_client import Channel, Content
from tests.kit.mirror_steps import await_shape, delete_queues, set_mirroring
from tests.kit.patience import wait_until

pytestmark = pytest.mark.slow

ROWS: Final[dict[str, Row]] = {}
PREFIX: Final = f"failover-{secrets.token_hex(2)}"
names = (f"{PREFIX}-{number}" for number in itertools.count(1))
FIVE: Final = (b"1", b"2", b"3", b"4", b"5")


def row(function: Row) -> Row:
    """Make a generator one of the rows."""
    ROWS[function.__name__] = function
    return function


@pytest.fixture(scope="module", params=["stop_app", "sigterm", "kill"])
def played(request: pytest.FixtureRequest, shared_cluster: _SharedCluster) -> Iterator[Rows]:
    """The story with all rows, at its end."""
    story = Story(shared_cluster.healed(), request.param)
    set_mirroring(story.near, PREFIX, "all")
    rows = Rows(story, ROWS)
    rows.play()
    yield rows
    story.close()
    cluster = shared_cluster.healed()
    delete_queues(cluster[0], PREFIX)
    cluster[0].admin.clear_policy("/", PREFIX)


def mirrored(story: Story, *bodies: bytes, properties: Properties = PERSISTENT, **fields: Any) -> str:
    """A durable mirrored queue with these messages whose master is on the node that will end."""
    queue = next(names)
    story.channel(story.home).declare(queue, **{"durable": True, **fields})
    publish(story.channel(story.far), queue, *bodies, properties=properties)
    return queue


def found(contents: list[Content]) -> list[tuple[bytes, bool]]:
    """Bodies and whether redelivered."""
    return [(content.body, content.method.redelivered) for content in contents]


def take(channel: Channel, count: int) -> list[Content]:
    return [channel.deliver() for _ in range(count)]


# --- messages ---


@row
def confirmed_are_kept(story: Story) -> Iterator[None]:
    """§9.4, §2.2 declare_synchrony: mirrors were there before declare-ok; the oldest of them is the master."""
    queue = mirrored(story, *FIVE)
    yield
    assert [content.body for content in drain(story.channel(story.far), queue)] == list(FIVE)
    replicas = story.near.replicas(queue)
    assert {replicas.master, *replicas.mirrors} == {story.near.name, story.far.name}


@row
def transient_messages_are_kept(story: Story) -> Iterator[None]:
    """§9.3: what is not persistent is mirrored as well."""
    queue = mirrored(story, *FIVE, properties=TRANSIENT)
    yield
    assert [content.body for content in drain(story.channel(), queue)] == list(FIVE)


@row
def transient_queue_is_kept(story: Story) -> Iterator[None]:
    """§9.3 [E]: transient queues can be mirrored."""
    queue = mirrored(story, *FIVE, durable=False)
    yield
    assert [content.body for content in drain(story.channel(), queue)] == list(FIVE)
    yield
    assert queue_exists(story.channel(story.home), queue)


@row
def unacked_come_back_in_order(story: Story) -> Iterator[None]:
    """§9.4: what the clients of the old master held is ready, flagged, and in its old place."""
    queue = mirrored(story, *FIVE)
    consumer = story.channel(story.home)
    consumer.call(BasicQos, prefetch_count=3)
    consumer.consume(queue)
    take(consumer, 3)
    yield
    contents = found(drain(story.channel(), queue))
    assert [body for body, _ in contents] == list(FIVE)
    assert all(flag for _, flag in contents[:3])


@row
def got_unacked_come_back(story: Story) -> Iterator[None]:
    """§9.4 [E]: basic.get's too, while the channel that got them lives on."""
    queue = mirrored(story, b"1", b"2")
    channel = story.channel()
    assert channel.wait_get(queue, no_ack=False).body == b"1"
    yield
    contents = found(drain(story.channel(story.far), queue))
    assert [body for body, _ in contents] == [b"1", b"2"]
    assert contents[0][1]
    channel.send(BasicAck, delivery_tag=1)
    channel.sync()


@row
def requeued_stay_in_order(story: Story) -> Iterator[None]:
    """§9.5: the place of a requeue is that of an unmirrored queue, before and after."""
    queue = mirrored(story, *FIVE)
    channel = story.channel()
    tags = [channel.wait_get(queue, no_ack=False).method.delivery_tag for _ in range(3)]
    channel.send(BasicNack, delivery_tag=tags[1], requeue=True)
    channel.send(BasicNack, delivery_tag=tags[0], requeue=True)
    channel.sync()
    yield
    channel = story.channel()
    got = [channel.wait_get(queue, no_ack=False) for _ in range(4)]
    assert [content.body for content in got] == [b"1", b"2", b"3", b"4"]
    channel.send(BasicReject, delivery_tag=got[2].method.delivery_tag, requeue=True)
    channel.send(BasicReject, delivery_tag=got[0].method.delivery_tag, requeue=True)
    assert [channel.wait_get(queue).body for _ in range(3)] == [b"1", b"3", b"5"]


@row
def acked_are_gone(story: Story) -> Iterator[None]:
    """§9.4: what was acknowledged a while before is not there again."""
    queue = mirrored(story, *FIVE)
    channel = story.channel()
    channel.consume(queue, consumer_tag="c")
    take(channel, 5)
    channel.send(BasicAck, delivery_tag=3, multiple=True)
    channel.call(methods.BasicCancel, consumer_tag="c")
    yield
    assert [content.body for content in drain(story.channel(story.far), queue)] == [b"4", b"5"]


# --- consumers ---


@row
def consumers_are_attached_again(story: Story) -> Iterator[None]:
    """§9.4: without a cancel; new tags, which keep rising; a new prefetch window; old tags may be acked."""
    queue = mirrored(story, *FIVE)
    channel = story.channel(client_properties=TAKES_CANCEL)
    channel.call(BasicQos, prefetch_count=3)
    channel.consume(queue)
    assert [content.method.delivery_tag for content in take(channel, 3)] == [1, 2, 3]
    yield
    again = take(channel, 3)
    assert found(again) == [(b"1", True), (b"2", True), (b"3", True)]
    assert [content.method.delivery_tag for content in again] == [4, 5, 6]
    channel.sync()
    channel.send(BasicAck, delivery_tag=6, multiple=True)
    assert [content.body for content in take(channel, 2)] == [b"4", b"5"]
    channel.send(BasicAck, delivery_tag=0, multiple=True)
    channel.sync()
    yield
    assert drain(story.channel(), queue) == []
    publish(story.channel(story.home), queue, b"new")
    content = channel.deliver()
    assert (content.body, content.method.delivery_tag) == (b"new", 9)


@row
def old_tags_are_accepted(story: Story) -> Iterator[None]:
    """§9.4: ack, nack, reject of a tag from before are no error. What they do is not said."""
    queue = mirrored(story, *FIVE)
    channel = story.channel()
    channel.consume(queue, consumer_tag="c")
    take(channel, 5)
    yield
    assert len(take(channel, 5)) == 5
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicNack, delivery_tag=2, requeue=False)
    channel.send(BasicReject, delivery_tag=3, requeue=False)
    channel.send(BasicAck, delivery_tag=5, multiple=True)
    channel.sync()
    channel.send(BasicAck, delivery_tag=10, multiple=True)
    channel.call(methods.BasicCancel, consumer_tag="c")
    assert drain(story.channel(story.far), queue) == []


@row
def consumer_that_wants_a_cancel(story: Story) -> Iterator[None]:
    """§9.4: x-cancel-on-ha-failover; each consumer on its own, and the channel stays open."""
    queue, arguments = mirrored(story), {"x-cancel-on-ha-failover": boolean(True)}
    channel = story.channel(client_properties=TAKES_CANCEL)
    channel.consume(queue, consumer_tag="one", arguments=arguments)
    channel.consume(queue, consumer_tag="two", arguments=arguments)
    yield
    assert {channel.expect(BasicCancel).consumer_tag for _ in range(2)} == {"one", "two"}
    channel.consume(queue, consumer_tag="one")
    publish(story.channel(), queue, b"after")
    content = channel.deliver()
    assert (content.body, content.method.consumer_tag) == (b"after", "one")


@row
def consumer_without_acks(story: Story) -> Iterator[None]:
    """§9.4: attached again as well; what it had is not sent again."""
    queue = mirrored(story, *FIVE)
    channel = story.channel()
    channel.consume(queue, no_ack=True)
    take(channel, 5)
    yield
    publish(story.channel(story.far), queue, b"after")
    assert channel.deliver().body == b"after"


@row
def exclusive_consumer(story: Story) -> Iterator[None]:
    """An exclusive consumer stays exclusive after a failover."""
    queue = mirrored(story)
    channel = story.channel()
    channel.consume(queue, exclusive=True)
    yield
    publish(story.channel(), queue, b"after")
    assert channel.deliver().body == b"after"
    other = story.channel(story.far)
    other.send(BasicConsume, queue=queue)
    other.expect_close(403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use", BasicConsume)


@row
def single_active_consumer(story: Story) -> Iterator[None]:
    """§2.2 single_active_consumer mirrored: one of those that are left is the active one, and the others wait."""
    queue = mirrored(story, arguments={"x-single-active-consumer": boolean(True)})
    channels = [story.channel(story.near), story.channel(story.far)]
    for channel in channels:
        channel.consume(queue, consumer_tag=f"c{channels.index(channel)}", no_ack=True)
    yield
    publish(story.channel(), queue, *FIVE)
    active = [channel for channel in channels if waits(channel)]
    assert len(active) == 1
    assert [content.body for content in take(active[0], 5)] == list(FIVE)
    (waiting,) = (channel for channel in channels if channel is not active[0])
    active[0].call(methods.BasicCancel, consumer_tag=f"c{channels.index(active[0])}")
    publish(story.channel(), queue, b"next")
    assert waiting.deliver().body == b"next"


def waits(channel: Channel) -> bool:
    """Whether something comes on this channel; it is left there."""
    try:
        frame = channel.connection.next_frame(1, 1.0)
    except AssertionError:
        return False
    channel.connection._waiting.insert(0, frame)
    return True


@row
def consumer_priorities(story: Story) -> Iterator[None]:
    """x-priority of consumers holds after a failover."""
    queue = mirrored(story)
    low, high = story.channel(), story.channel(story.far)
    low.consume(queue, no_ack=True)
    high.consume(queue, no_ack=True, arguments={"x-priority": long(5)})
    yield
    publish(story.channel(), queue, *FIVE)
    assert [content.body for content in take(high, 5)] == list(FIVE)
    low.expect_nothing()


@row
def auto_delete(story: Story) -> Iterator[None]:
    """§9.3: an auto-delete queue is kept for its consumer, and goes with it."""
    queue = mirrored(story, durable=False, auto_delete=True)
    channel = story.channel()
    channel.consume(queue, consumer_tag="c")
    yield
    publish(story.channel(), queue, b"after")
    assert channel.deliver().body == b"after"
    channel.call(methods.BasicCancel, consumer_tag="c")
    wait_until(lambda: not queue_exists(story.channel(), queue), "it goes")


# --- rules of the queue ---


@row
def priorities(story: Story) -> Iterator[None]:
    """Messages come by priority and then in order."""
    queue = mirrored(story, arguments={"x-max-priority": long(5)})
    for priority in (0, 5, 2, 5, 0):
        publish(
            story.channel(),
            queue,
            b"%d" % priority,
            properties=Properties(delivery_mode=2, priority=priority),
        )
    yield
    publish(story.channel(), queue, b"4", properties=Properties(delivery_mode=2, priority=4))
    assert [content.body for content in drain(story.channel(), queue)] == [b"5", b"5", b"4", b"2", b"0", b"0"]


@row
def expiry_goes_on(story: Story) -> Iterator[None]:
    """Messages expire when they would have, and are dead-lettered, one that was published before too."""
    grave = mirrored(story)
    arguments: Table = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr(grave)}
    queue = mirrored(story, arguments=arguments)
    publish(story.channel(), queue, b"dies", properties=Properties(delivery_mode=2, expiration="6000"))
    publish(story.channel(), queue, b"stays")
    yield
    content = story.channel().wait_get(grave, within=15)
    assert content.body == b"dies"
    assert deaths(content)[0]["reason"] == longstr("expired")
    assert [content.body for content in drain(story.channel(), queue)] == [b"stays"]


@row
def limits_hold(story: Story) -> Iterator[None]:
    """x-max-length drops from the head."""
    queue = mirrored(story, b"1", b"2", b"3", arguments={"x-max-length": long(3)})
    yield
    publish(story.channel(), queue, b"4", b"5")
    assert [content.body for content in drain(story.channel(), queue)] == [b"3", b"4", b"5"]


@row
def reject_publish_holds(story: Story) -> Iterator[None]:
    """§9.5: the decision is the master's."""
    arguments: Table = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    queue = mirrored(story, b"1", arguments=arguments)
    yield
    channel = story.channel(story.far)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"2", PERSISTENT)
    assert channel.expect(BasicNack).delivery_tag == 1
    assert [content.body for content in drain(story.channel(), queue)] == [b"1"]


@row
def dead_letters(story: Story) -> Iterator[None]:
    """§2.2 dead_lettering mirrored: what is rejected after it goes where it would have gone before."""
    grave = mirrored(story)
    arguments: Table = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr(grave)}
    queue = mirrored(story, b"1", b"2", arguments=arguments)
    channel = story.channel()
    reject(channel, queue)
    channel.wait_get(grave)
    yield
    channel = story.channel(story.far)
    reject(channel, queue)
    content = channel.wait_get(grave)
    assert content.body == b"2"
    assert deaths(content)[0]["reason"] == longstr("rejected")


# --- operations ---


@row
def bindings_are_kept(story: Story) -> Iterator[None]:
    """§9.7: and publishes through them arrive."""
    queue = mirrored(story)
    key = next(names)
    story.channel().call(QueueBind, queue=queue, exchange="amq.direct", routing_key=key)
    yield
    channel = story.channel()
    channel.call(ConfirmSelect)
    channel.publish("amq.direct", key, b"after", PERSISTENT, mandatory=True)
    channel.expect(BasicAck)
    assert [content.body for content in drain(channel, queue)] == [b"after"]


@row
def declare_purge_delete(story: Story) -> Iterator[None]:
    """§9.4: as before. The counts are right."""
    queue = mirrored(story, *FIVE)
    yield
    channel = story.channel(story.far)
    assert channel.call(QueueDeclare, queue=queue, durable=True).message_count == 5
    assert channel.call(QueuePurge, queue=queue).message_count == 5
    publish(channel, queue, b"1", b"2")
    assert channel.call(QueueDelete, queue=queue).message_count == 2
    assert not queue_exists(story.channel(), queue)
    yield
    assert not queue_exists(story.channel(story.home), queue)


@row
def inequivalent_declare(story: Story) -> Iterator[None]:
    """§9.4: still 406."""
    queue = mirrored(story)
    yield
    channel = story.channel()
    channel.send(QueueDeclare, queue=queue)
    text = f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/'"
    channel.expect_close(406, f"{text}: received 'false' but current is 'true'", QueueDeclare)


@row
def transaction(story: Story) -> Iterator[None]:
    """§9.4: one that was open before commits after it; acks of old tags in it are no error."""
    queue = mirrored(story, b"1")
    channel = story.channel()
    channel.call(TxSelect)
    channel.publish("", queue, b"2", PERSISTENT)
    tag = channel.wait_get(queue, no_ack=False).method.delivery_tag
    channel.send(BasicAck, delivery_tag=tag)
    channel.sync()
    yield
    channel.call(TxCommit)
    assert b"2" in [content.body for content in drain(story.channel(story.far), queue)]


@row
def publisher_goes_on(story: Story) -> Iterator[None]:
    """§9.4: a channel with confirms, on either node; nothing is nacked or comes twice."""
    queue = mirrored(story)
    channels = [story.channel(story.near), story.channel(story.far)]
    for channel in channels:
        channel.call(ConfirmSelect)
        channel.publish("", queue, b"before", PERSISTENT)
        channel.expect(BasicAck)
    yield
    for channel in channels:
        channel.publish("", queue, b"after", PERSISTENT, mandatory=True)
        assert channel.expect(BasicAck).delivery_tag == 2
    assert [c.body for c in drain(story.channel(), queue)] == [b"before"] * 2 + [b"after"] * 2


# --- exclusive queues ---


@row
def exclusive_queues_are_not_mirrored(story: Story) -> Iterator[None]:
    """§9.3 [E], §2.2 clean_up_exclusive_queues: a policy does not hold for them; they go with their node."""
    gone, stays = next(names), next(names)
    story.channel(story.home).declare(gone, exclusive=True)
    keeper = story.channel(story.near)
    keeper.declare(stays, exclusive=True)
    for queue in (gone, stays):
        assert story.near.replicas(queue).mirrors == set()
    yield
    assert not queue_exists(story.channel(), gone)
    assert keeper.call(QueueDeclare, queue=stays, passive=True).queue == stays
    yield
    for node in story.cluster.nodes:
        assert not queue_exists(story.channel(node), gone)


# --- the node is back ---


@row
def a_copy_starts_anew(story: Story) -> Iterator[None]:
    """§9.3: a returned mirror has nothing, and is synchronised when what was there before it has gone."""
    queue = mirrored(story, *FIVE)
    yield
    publish(story.channel(), queue, b"while away")
    yield
    others = {story.near.name, story.far.name}
    seen = await_shape(story.near, queue, mirrors=2)
    assert seen.master in others
    assert seen.synced == others - {seen.master}
    publish(story.channel(), queue, b"new")
    bodies = [content.body for content in drain(story.channel(story.home), queue)]
    assert bodies == [*FIVE, b"while away", b"new"]
    await_shape(story.near, queue, synced=2)


@row
def an_empty_queue_is_synchronised(story: Story) -> Iterator[None]:
    """§9.3: at once when the node is back."""
    queue = mirrored(story)
    yield
    yield
    await_shape(story.near, queue, mirrors=2, synced=2)


# Last, when all rows are known.


@pytest.mark.parametrize("name_of_row", list(ROWS))
def test_row(played: Rows, name_of_row: str) -> None:
    """The generator of that name says which row it is."""
    played.check(name_of_row)
