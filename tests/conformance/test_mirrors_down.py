"""amqp-behaviour §9.4, reliability §2.2 promote_*, force_delete_if_no_master: the master ends, and no mirror has all.

The master is on the second of three nodes. Its messages are older than the policy, so the mirrors on the others lack
them. Policies name what is to happen, since our default for failures is another one than RabbitMQ's.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicQos,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
)
from tests.conformance.cluster_story import PERSISTENT, Row, Rows, Story, drain, publish
from tests.conformance.conftest import _SharedCluster
from tests.conformance.entities import queue_exists
from tests.conformance.test_section_9_home_down import TAKES_CANCEL
from tests.kit.amqp_client import Channel, Connection, Content, MethodType
from tests.kit.mirror_steps import (
    End,
    Mirrored,
    await_shape,
    delete_queues,
    end,
    numbered,
    set_mirroring,
)
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, is_rabbitmq, start_cluster

pytestmark = pytest.mark.slow

On = Callable[..., Channel]

ROWS: Final[dict[str, Row]] = {}
PREFIX: Final = f"down-{secrets.token_hex(2)}"
names = (f"{PREFIX}-{number}-" for number in itertools.count(1))
"""Queues and the policies of each have these names; the end so that none is the beginning of another."""
policies: list[str] = []
ANSWERED: Final = (
    *("publishes_are_nacked", "consumers_idle"),
    *("delete", "delete_and_declare", "delete_if_empty", "delete_if_unused"),
)
TEN: Final = list(numbered(10))
HANGS_S: Final = 1.0
GIVES_UP_S: Final = 80.0
"""A minute, and the time that RabbitMQ's tries take."""


def row(function: Row) -> Row:
    """Make a generator one of the rows."""
    ROWS[function.__name__] = function
    return function


Asked = dict[MethodType, Channel]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    """Questions to a queue that is down, each on a channel of its own, on a cluster that is left alone."""
    cluster, queue = start_cluster(), next(names)
    maker = Connection(cluster[0]).channel(1)
    maker.declare(queue, durable=True)
    publish(maker, queue, *TEN)
    set_mirroring(cluster[1], queue, "all")
    await_shape(cluster[1], queue, master=cluster[0].name, mirrors=2, synced=0)
    end(cluster[0], "stop_app", cluster)
    questions: Asked = {}
    for method in (QueueDeclare, BasicGet, BasicConsume, QueuePurge):
        questions[method] = Connection(cluster[1]).channel(1)
        questions[method].send(method, queue=queue, **({"durable": True} if method is QueueDeclare else {}))
    yield questions
    for channel in questions.values():
        channel.connection.socket.close()
    cluster.stop()


def test_questions_wait(asked: Asked) -> None:
    """§9.4: a minute: the first test, so that it passes while the others run."""
    for channel in asked.values():
        channel.expect_nothing(HANGS_S)


@pytest.mark.xfail(not is_rabbitmq(), reason="we read nothing of the connection meanwhile", strict=False)
def test_other_channels_go_on(asked: Asked) -> None:
    """§9.4: only the channel that asked waits."""
    other = Channel(asked[BasicGet].connection, 2)
    other.send(ChannelOpen)
    other.expect(ChannelOpenOk, 2)


@pytest.fixture(scope="module", params=["stop_app", "sigterm", "kill"])
def played(request: pytest.FixtureRequest, shared_cluster: _SharedCluster) -> Iterator[Rows]:
    """The story with all rows, at its end."""
    story = Story(shared_cluster.healed(), request.param)
    rows = Rows(story, {name: row for name, row in ROWS.items() if is_played(story.end, name)})
    rows.play()
    yield rows
    story.close()
    cluster = shared_cluster.healed()
    delete_queues(cluster[0], PREFIX)
    for policy in policies:
        cluster[0].admin.clear_policy("/", policy)
    policies.clear()


def is_played(how: str, name_of_row: str) -> bool:
    """RabbitMQ lets these wait a minute after a crash, as if nothing were known of the queue; we treat it as down."""
    return not is_rabbitmq() or how != "kill" or name_of_row not in ANSWERED


def mirror(story: Story, queue: str) -> None:
    """By a policy of its own."""
    set_mirroring(story.near, queue, "all", ha_promote_on_failure="when-synced")
    policies.append(queue)


def behind(story: Story, **fields: Any) -> str:
    """A durable queue with ten messages that only the master has."""
    queue = next(names)
    story.channel(story.home).declare(queue, durable=True, **fields)
    publish(story.channel(story.far), queue, *TEN)
    mirror(story, queue)
    seen = await_shape(story.near, queue, master=story.home.name, mirrors=2)
    assert seen.synced == set()
    return queue


def found(contents: list[Content]) -> list[bytes]:
    return [content.body for content in contents]


@row
def all_is_there_again(story: Story) -> Iterator[None]:
    """§2.2 promote_on_shutdown default, promote_on_failure when-synced: nothing until the node is back, then ten."""
    queue = behind(story)
    yield
    wait_until(lambda: story.near.replicas(queue).master == "", "no master")
    yield
    assert found(drain(story.channel(), queue)) == TEN
    assert await_shape(story.near, queue, mirrors=2).master == story.home.name


@row
def declare_waits(story: Story) -> Iterator[None]:
    """§9.4: a declare is answered when the node comes back."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.send(QueueDeclare, queue=queue, durable=True)
    channel.expect_nothing(HANGS_S)
    yield
    assert channel.expect(QueueDeclareOk, 30).message_count == 10


@row
def passive_waits(story: Story) -> Iterator[None]:
    """§9.4: so is a passive one."""
    queue = behind(story)
    yield
    channel = story.channel(story.far)
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_nothing(HANGS_S)
    yield
    assert channel.expect(QueueDeclareOk, 30).message_count == 10


@row
def get_waits(story: Story) -> Iterator[None]:
    """§9.4: so is a get."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.send(BasicGet, queue=queue, no_ack=True)
    channel.expect_nothing(HANGS_S)
    yield
    assert channel.expect_content(BasicGetOk, 30).body == b"0"


@row
def publishes_are_nacked(story: Story) -> Iterator[None]:
    """§9.4, traps: nacked, not returned even if mandatory, on both nodes that are left."""
    queue = behind(story)
    channels = [story.channel(story.near), story.channel(story.far)]
    for channel in channels:
        channel.call(ConfirmSelect)
    yield
    for channel in channels:
        for number in range(1, 4):
            channel.publish("", queue, b"lost", PERSISTENT, mandatory=True)
            assert channel.expect(BasicNack).delivery_tag == number
    yield
    channels[0].publish("", queue, b"kept", PERSISTENT, mandatory=True)
    assert channels[0].expect(BasicAck).delivery_tag == 4
    assert found(drain(story.channel(), queue)) == [*TEN, b"kept"]


@row
def consumers_idle(story: Story) -> Iterator[None]:
    """§9.4, traps: no cancel; deliveries resume when the node is back, redelivered; old tags may be acked."""
    queue = behind(story)
    channel = story.channel(client_properties=TAKES_CANCEL)
    channel.call(BasicQos, prefetch_count=3)
    channel.consume(queue)
    held = [channel.deliver() for _ in range(3)]
    yield
    channel.expect_nothing(HANGS_S)
    channel.send(BasicAck, delivery_tag=held[0].method.delivery_tag)  # RabbitMQ's channel handles it later
    yield
    again = [channel.deliver(30) for _ in range(3)]
    assert [content.body for content in again] in ([b"0", b"1", b"2"], [b"1", b"2", b"3"])
    assert all(content.method.redelivered for content in again[:2])


@row
def delete(story: Story) -> Iterator[None]:
    """§2.2 force_delete_if_no_master, §9.4: it goes, with all that it has; the count is 0."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.send(QueueDelete, queue=queue)
    assert channel.expect(QueueDeleteOk, 30).message_count == 0
    assert not queue_exists(channel, queue)
    yield
    for node in story.cluster.nodes:
        assert not queue_exists(story.channel(node), queue)


@row
def delete_and_declare(story: Story) -> Iterator[None]:
    """§2.2 force_delete_if_no_master: its name is free again; the old messages never come back."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.call(QueueDelete, queue=queue)
    assert channel.call(QueueDeclare, queue=queue, durable=True).message_count == 0
    publish(channel, queue, b"new")
    yield
    assert found(drain(story.channel(story.home), queue)) == [b"new"]


@row
def delete_if_empty(story: Story) -> Iterator[None]:
    """§2.2 force_delete_if_no_master, §9.4: 406, since nobody knows."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.send(QueueDelete, queue=queue, if_empty=True)
    channel.expect_close(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty", QueueDelete)
    yield
    assert found(drain(story.channel(), queue)) == TEN


@row
def delete_if_unused(story: Story) -> Iterator[None]:
    """§9.4: allowed."""
    queue = behind(story)
    yield
    channel = story.channel()
    channel.send(QueueDelete, queue=queue, if_unused=True)
    assert channel.expect(QueueDeleteOk, 30).message_count == 0


@row
def list_queues(story: Story) -> Iterator[None]:
    """§2.5 list_queues_online_and_offline: it is down, and listed."""
    queue = behind(story)
    yield
    if not is_rabbitmq():  # which lists it as neither
        listed = story.near.ctl("list_queues", "name", "--offline")
        assert queue in listed.output.split(), listed
        assert queue not in story.near.ctl("list_queues", "name", "--online").output.split()


@row
def what_was_promoted_is_not_down(story: Story) -> Iterator[None]:
    """The other queues of that node, whose mirrors had all, go on."""
    queue = next(names)
    mirror(story, queue)
    story.channel(story.home).declare(queue, durable=True)
    publish(story.channel(), queue, *TEN)
    yield
    assert found(drain(story.channel(), queue)) == TEN


# The policies one by one.


def declare_behind(cluster: Cluster, on: On, prefix_of: Callable[[], str]) -> str:
    """A queue with ten messages on the first node, mirrored by a policy that is set after they came."""
    prefix = prefix_of()
    cluster[0].admin.clear_policy("/", prefix)
    on(cluster[0]).declare(prefix, durable=True)
    publish(on(cluster[0]), prefix, *TEN)
    return prefix


@pytest.mark.parametrize("how", ["stop_app", "terminate"])
def test_promote_on_shutdown_always(shaken_cluster: Cluster, on: On, mirrored: Mirrored, how: End) -> None:
    """§2.2 promote_on_shutdown: always: an empty mirror is promoted."""
    queue = declare_behind(shaken_cluster, on, mirrored)
    rules = {"ha_promote_on_shutdown": "always", "ha_promote_on_failure": "always"}
    set_mirroring(shaken_cluster[1], queue, "all", **rules)
    await_shape(shaken_cluster[1], queue, master=shaken_cluster[0].name, mirrors=2, synced=0)
    end(shaken_cluster[0], how, shaken_cluster)
    assert on(shaken_cluster[1]).call(QueueDeclare, queue=queue, passive=True).message_count == 0
    shaken_cluster.heal()
    assert on(shaken_cluster[0]).call(QueueDeclare, queue=queue, passive=True).message_count == 0


def test_promote_on_shutdown_needs_both(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 promote_on_shutdown: always for shutdowns does not count with when-synced for failures."""
    queue = declare_behind(shaken_cluster, on, mirrored)
    rules = {"ha_promote_on_shutdown": "always", "ha_promote_on_failure": "when-synced"}
    set_mirroring(shaken_cluster[1], queue, "all", **rules)
    await_shape(shaken_cluster[1], queue, master=shaken_cluster[0].name, mirrors=2, synced=0)
    end(shaken_cluster[0], "stop_app", shaken_cluster)
    channel = on(shaken_cluster[1])
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_nothing(HANGS_S)
    shaken_cluster.heal()
    assert channel.expect(QueueDeclareOk, 30).message_count == 10


def test_promote_on_failure_always(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 promote_on_failure: always: an empty mirror is promoted; the old copy is never looked at again."""
    queue = declare_behind(shaken_cluster, on, mirrored)
    set_mirroring(shaken_cluster[1], queue, "all", ha_promote_on_failure="always")
    await_shape(shaken_cluster[1], queue, master=shaken_cluster[0].name, mirrors=2, synced=0)
    end(shaken_cluster[0], "kill", shaken_cluster)
    channel = on(shaken_cluster[1])
    assert channel.call(QueueDeclare, queue=queue, passive=True).message_count == 0
    publish(channel, queue, b"new")
    shaken_cluster.heal()
    assert found(drain(on(shaken_cluster[0]), queue)) == [b"new"]


@pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ's default is always: docs/differences.md")
def test_promote_on_failure_default(shaken_cluster: Cluster, on: On, mirrored: Mirrored) -> None:
    """§2.2 promote_on_failure: when-synced, where nothing is said: we lose nothing that was confirmed."""
    queue = declare_behind(shaken_cluster, on, mirrored)
    set_mirroring(shaken_cluster[1], queue, "all")
    await_shape(shaken_cluster[1], queue, master=shaken_cluster[0].name, mirrors=2, synced=0)
    end(shaken_cluster[0], "kill", shaken_cluster)
    channel = on(shaken_cluster[1])
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_nothing(HANGS_S)
    shaken_cluster.heal()
    assert channel.expect(QueueDeclareOk, 30).message_count == 10


# Last, when all rows are known.


@pytest.mark.parametrize("name_of_row", list(ROWS))
def test_row(played: Rows, name_of_row: str) -> None:
    """The generator of that name says which row it is."""
    if not is_played(played.story.end, name_of_row):
        pytest.skip("RabbitMQ does not answer")
    played.check(name_of_row)


def test_404_in_the_end(asked: Asked) -> None:
    """§9.4: who waits longer than a minute gets 404."""
    for method, channel in asked.items():
        close = channel.expect(ChannelClose, GIVES_UP_S)
        failed = (close.failed_class_id, close.failed_method_id)
        assert (close.reply_code, failed) == (404, (method.class_id, method.method_id))
        assert re.match(rf"NOT_FOUND - .*queue '{PREFIX}.*' in vhost '/'", close.reply_text), close
