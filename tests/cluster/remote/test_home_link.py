"""Consuming from queues on other nodes: what a channel gets, limits and gives back (amqp-behaviour §4.5-§4.12)."""

import pytest

from cluster.remote.outlet import WINDOW_BYTES
from node.amqp.field_table import long
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    QueueDelete,
    QueueDeleteOk,
)
from node.queue.run import Batch
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client, Received


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare("n2", "q")
    cluster.declare("n1", "own")
    cluster.declare("n3", "r")
    return cluster


def bodies(items: list[Received]) -> list[bytes]:
    return [item.body for item in items if isinstance(item.method, BasicDeliver)]


def fill(cluster: Cluster, queue: str, *contents: bytes, node: str = "n3") -> None:
    """Publish to a queue from a node that has no other part in it."""
    client = client_of(cluster[node])
    client.publish(1, queue, *contents)
    cluster.settle()
    client.lose()
    cluster.settle()


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def consume(client: Client, queue: str = "q", tag: str = "t", channel: int = 1, **options: object) -> None:
    client.send(channel, BasicConsume(queue=queue, consumer_tag=tag, **options))  # type: ignore[arg-type]


# --- deliveries ---


def test_deliveries_keep_order_and_come_after_consume_ok(cluster: Cluster) -> None:
    fill(cluster, "q", *numbered(0, 5))
    client = client_of(cluster["n1"])
    consume(client)
    items = client.received()
    assert items[0].method == BasicConsumeOk("t")
    assert [item.method for item in items[1:]] == [
        BasicDeliver("t", tag, False, "", "q") for tag in range(1, 6)
    ]
    assert bodies(items) == numbered(0, 5)
    client.send(1, BasicAck(5, multiple=True))
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (0, 0)
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_a_run_is_one_frame(cluster: Cluster) -> None:
    fill(cluster, "q", *numbered(0, 50))
    client = client_of(cluster["n1"])
    before = cluster["n2"].frame_count
    consume(client)
    assert len(bodies(client.received())) == 50
    assert cluster["n2"].frame_count <= before + 2


def test_nacked_messages_come_back_redelivered_to_their_old_place(cluster: Cluster) -> None:
    """§4.11: 1 and 3 are requeued while 0 and 2 are held: 1, 3, 4, 5."""
    fill(cluster, "q", *numbered(0, 6))
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=4))
    consume(client)
    assert bodies(client.received()) == numbered(0, 4)
    client.send(1, BasicReject(2, requeue=True))
    client.send(1, BasicNack(4, requeue=True))
    items = client.received()
    assert bodies(items) == [b"1", b"3"]
    assert [item.method.redelivered for item in items if isinstance(item.method, BasicDeliver)] == [
        True,
        True,
    ]
    other = client_of(cluster["n3"])
    consume(other)
    assert bodies(other.received()) == [b"4", b"5"]


def test_bulk_requeue_keeps_order(cluster: Cluster) -> None:
    fill(cluster, "q", *numbered(0, 4))
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    client.send(1, BasicRecover(requeue=True))
    items = client.received()
    assert items[0].method == BasicRecoverOk()
    assert bodies(items) == numbered(0, 4)


def test_rejected_messages_are_dropped_at_home(cluster: Cluster) -> None:
    fill(cluster, "q", b"1", b"2")
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    client.send(1, BasicNack(2, multiple=True, requeue=False))
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (0, 0)


def test_quorum_queues_count_deliveries_across_nodes(cluster: Cluster) -> None:
    """x-delivery-count is added where the client is."""
    from node.amqp.field_table import longstr

    cluster.declare("n2", "counted", {"x-queue-type": longstr("quorum")}, durable=True)
    fill(cluster, "counted", b"1")
    client = client_of(cluster["n1"])
    consume(client, "counted")
    client.received()
    client.send(1, BasicNack(1, requeue=True))
    (item,) = client.received()
    assert item.properties is not None
    assert item.properties.headers is not None
    assert item.properties.headers["x-delivery-count"] == long(1)


@pytest.mark.parametrize("is_lost", [False, True])
def test_closing_a_channel_or_losing_a_connection_requeues_at_home(cluster: Cluster, is_lost: bool) -> None:
    fill(cluster, "q", *numbered(0, 3))
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    if is_lost:
        client.lose()
    else:
        assert client.ask(1, ChannelClose(200, "", 0, 0)) == ChannelCloseOk()
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count, len(home.consumers)) == (3, 0, 0)
    other = client_of(cluster["n3"])
    consume(other)
    items = other.received()
    assert bodies(items) == numbered(0, 3)
    assert all(item.method.redelivered for item in items if isinstance(item.method, BasicDeliver))
    other.lose()
    client.lose()
    cluster.settle()
    cluster.check_idle()


# --- cancelling ---


@pytest.mark.parametrize("no_ack", [False, True])
def test_deliveries_for_a_consumer_that_is_gone_go_back(cluster: Cluster, no_ack: bool) -> None:
    """Nothing comes after cancel-ok (§4.6), and nothing is lost. It is redelivered, though nobody has seen it: another
    consumer may have got later messages meanwhile, and first deliveries come in order.
    """
    client = client_of(cluster["n1"])
    consume(client, no_ack=no_ack)
    client.received()
    cluster.is_held = True
    cluster["n2"].broker.now = cluster["n2"].now
    at_home = cluster["n2"].home_queue("q")
    client.send(1, BasicCancel("t"))
    cluster["n1"].turn()
    cluster.deliver("n1", "n2")
    cluster["n2"].turn()  # its answer is on the way: what comes after that is not for the consumer
    fill_home(cluster, b"1", b"2")
    cluster["n2"].turn()
    cluster.deliver("n2", "n1", 1)
    cluster.is_held = False
    assert client.methods() == [BasicCancelOk("t")]
    assert (at_home.backlog.count, at_home.unacked_count) == (2, 0)
    other = client_of(cluster["n3"])
    consume(other)
    items = other.received()
    assert bodies(items) == [b"1", b"2"]
    assert all(item.method.redelivered for item in items if isinstance(item.method, BasicDeliver))
    other.lose()
    cluster.settle()
    cluster.check_idle()


def fill_home(cluster: Cluster, *contents: bytes) -> None:
    from tests.kit.messages import content, envelope

    batch = Batch(envelope(), [content(raw) for raw in contents], -1)
    cluster["n2"].home_queue("q").enqueue(batch, cluster["n2"].now)


def test_unacked_deliveries_survive_their_consumer(cluster: Cluster) -> None:
    """§4.6."""
    fill(cluster, "q", b"1", b"2")
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    client.send(1, BasicCancel("t"))
    client.received()
    client.send(1, BasicAck(1))
    client.send(1, BasicNack(2, requeue=True))
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (1, 0)


def test_a_subscription_answered_after_its_channel_closed_is_taken_back(cluster: Cluster) -> None:
    fill(cluster, "q", b"1")
    client = client_of(cluster["n1"])
    cluster.is_held = True
    consume(client)
    cluster["n1"].turn()
    client.lose()
    cluster.is_held = False
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count, len(home.consumers)) == (1, 0, 0)
    cluster.check_idle()


def test_consumers_hear_of_a_deletion(cluster: Cluster) -> None:
    """§4.7; wherever the queue was deleted, and after delete-ok on the channel that did it."""
    client, other = client_of(cluster["n1"]), client_of(cluster["n3"])
    consume(client)
    consume(other)
    client.received()
    other.received()
    client.send(1, QueueDelete(queue="q"))
    assert client.methods() == [QueueDeleteOk(0), BasicCancel("t", nowait=True)]
    assert other.methods() == [BasicCancel("t", nowait=True)]
    consume(client, "own")
    client.received()
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_acks_for_a_deleted_queue_are_fine(cluster: Cluster) -> None:
    """§4.10."""
    fill(cluster, "q", b"1")
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    client_of(cluster["n2"]).send(1, QueueDelete(queue="q"))
    cluster.settle()
    client.send(1, BasicAck(1))
    assert client.methods() == [BasicCancel("t", nowait=True)]
    cluster.check_idle()


def test_an_auto_delete_queue_goes_with_its_last_consumer_on_whatever_node(cluster: Cluster) -> None:
    """§3.12."""
    cluster.declare("n2", "brief", auto_delete=True)
    first, second = client_of(cluster["n1"]), client_of(cluster["n3"])
    consume(first, "brief")
    first.received()
    consume(second, "brief")
    second.received()
    first.lose()
    cluster.settle()
    assert all("brief" in node.queue_names for node in cluster)
    second.send(1, BasicCancel("t"))
    assert second.methods() == [BasicCancelOk("t")]
    assert all("brief" not in node.queue_names for node in cluster)
    cluster.check_idle()


# --- who gets what ---


def test_exclusive_use_is_watched_at_home(cluster: Cluster) -> None:
    """§4.6."""
    text = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    holder, other = client_of(cluster["n1"]), client_of(cluster["n3"], 1, 2)
    consume(holder, exclusive=True)
    holder.received()
    consume(other)
    assert other.methods() == [ChannelClose(403, text, 60, 20)]
    holder.send(1, BasicCancel("t"))
    holder.received()
    consume(other, channel=2)
    assert other.methods() == [BasicConsumeOk("t")]
    consume(holder, exclusive=True)
    assert holder.methods() == [ChannelClose(403, text, 60, 20)]
    holder.lose()
    other.lose()
    cluster.settle()
    cluster.check_idle()


def test_one_consumer_is_active_where_the_queue_says_so(cluster: Cluster) -> None:
    """§4.8: the first, then the one of highest priority."""
    from node.amqp.field_table import boolean

    cluster.declare("n2", "single", {"x-single-active-consumer": boolean(True)})
    clients = [client_of(cluster[name]) for name in ("n1", "n2", "n3")]
    for priority, client in enumerate(clients):
        consume(client, "single", arguments={"x-priority": long(priority)})
        client.received()
    fill(cluster, "single", *numbered(0, 4))
    assert [bodies(client.received()) for client in clients] == [numbered(0, 4), [], []]
    clients[0].send(1, BasicCancel("t"))
    clients[0].received()
    fill(cluster, "single", b"4")
    assert [bodies(client.received()) for client in clients] == [[], [], [b"4"]]


def test_higher_priorities_go_first_whatever_their_node(cluster: Cluster) -> None:
    low, high = client_of(cluster["n2"]), client_of(cluster["n1"])
    consume(low)
    low.received()
    high.ask(1, BasicQos(prefetch_count=2))
    consume(high, arguments={"x-priority": long(5)})
    high.received()
    fill(cluster, "q", *numbered(0, 4))
    assert bodies(high.received()) == [b"0", b"1"]
    assert bodies(low.received()) == [b"2", b"3"]


def test_messages_go_round_all_nodes(cluster: Cluster) -> None:
    clients = [client_of(cluster[name]) for name in ("n1", "n2", "n3")]
    for client in clients:
        consume(client)
        client.received()
    fill(cluster, "q", *numbered(0, 9))
    got = [bodies(client.received()) for client in clients]
    assert sorted(map(len, got)) == [3, 3, 3]
    assert all(some == sorted(some) for some in got)


def test_prefetch_of_a_consumer(cluster: Cluster) -> None:
    fill(cluster, "q", *numbered(0, 5))
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=2))
    consume(client)
    assert bodies(client.received()) == [b"0", b"1"]
    client.send(1, BasicAck(1))
    assert bodies(client.received()) == [b"2"]
    client.send(1, BasicAck(3, multiple=True))
    assert bodies(client.received()) == [b"3", b"4"]


# --- the limit of a channel (§4.9) ---


def test_several_consumers_share_a_limit_of_one(cluster: Cluster) -> None:
    """Consumers of local and remote queues share a limit: each gets served, and never two at once."""
    for queue in ("q", "own", "r"):
        fill(cluster, queue, *[queue.encode()] * 10)
    client = client_of(cluster["n1"])
    assert client.ask(1, BasicQos(prefetch_count=1, global_=True)) == BasicQosOk()
    for queue in ("q", "own", "r"):
        consume(client, queue, queue)
        client.send(1, BasicConsume(queue=queue, consumer_tag=f"{queue} 2"))
    got = bodies(client.received())
    assert len(got) == 1
    for tag in range(1, 31):
        client.send(1, BasicAck(tag))
        more = bodies(client.received())
        assert len(more) == (1 if tag < 30 else 0), tag
        got += more
    assert sorted(got) == sorted([b"q", b"own", b"r"] * 10)
    for queue in (b"q", b"own", b"r"):
        assert queue in got[:6], "nobody starves"
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_a_limit_set_later_counts_what_is_out(cluster: Cluster) -> None:
    fill(cluster, "q", *numbered(0, 3))
    client = client_of(cluster["n1"])
    consume(client)
    assert len(bodies(client.received())) == 3
    client.ask(1, BasicQos(prefetch_count=2, global_=True))
    fill(cluster, "q", *numbered(3, 6))
    assert bodies(client.received()) == []
    client.send(1, BasicAck(1))
    assert bodies(client.received()) == []
    client.send(1, BasicAck(2))
    assert bodies(client.received()) == [b"3"]
    client.send(1, BasicQos(prefetch_count=0, global_=True))
    assert bodies(client.received()) == [b"4", b"5"]
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_deliveries_on_their_way_when_a_limit_is_set_go_back(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    cluster.is_held = True
    fill_home(cluster, *numbered(0, 5))
    cluster["n2"].turn()
    client.send(1, BasicQos(prefetch_count=2, global_=True))
    cluster.is_held = False
    items = client.received()
    assert bodies(items) == [b"0", b"1"]
    client.send(1, BasicAck(2, multiple=True))
    items = client.received()
    assert bodies(items) == [b"2", b"3"]
    assert all(item.method.redelivered for item in items if isinstance(item.method, BasicDeliver))


def test_a_grant_that_is_not_needed_is_given_back(cluster: Cluster) -> None:
    """Two nodes want the same message; the slot that is left over serves another queue."""
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=1, global_=True))
    consume(client)
    consume(client, "own", "o")
    client.received()
    cluster.is_held = True
    fill_home(cluster, b"1")
    cluster["n2"].turn()  # it wants a slot
    cluster.deliver("n2", "n1")
    cluster["n1"].turn()  # it is granted one
    cluster["n2"].home_queue("q").backlog.clear()
    cluster.is_held = False
    cluster.settle()
    fill(cluster, "own", b"2")
    assert bodies(client.received()) == [b"2"]
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_a_grant_that_was_given_back_is_not_used(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=3, global_=True))
    consume(client)
    client.received()
    cluster.is_held = True
    fill_home(cluster, b"1")
    cluster["n2"].turn()
    cluster.deliver("n2", "n1")
    cluster["n1"].turn()
    cluster["n2"].home_queue("q").backlog.clear()
    cluster.deliver("n1", "n2")
    cluster["n2"].turn()  # the grant goes back
    fill_home(cluster, b"2")
    cluster["n2"].turn()  # so it has to ask again
    (consumer,) = cluster["n2"].home_queue("q").consumers.all
    assert consumer.unacked == 0
    cluster.is_held = False
    assert bodies(client.received()) == [b"2"]


def test_a_limit_stops_even_those_who_need_not_ack(cluster: Cluster) -> None:
    fill(cluster, "own", b"0")
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=1, global_=True))
    consume(client, "own", "o")
    assert bodies(client.received()) == [b"0"]
    consume(client, no_ack=True)
    client.received()
    fill(cluster, "q", *numbered(1, 4))
    assert bodies(client.received()) == []
    client.send(1, BasicAck(1))
    assert bodies(client.received()) == numbered(1, 4)
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_a_home_that_dies_gives_back_what_it_was_granted(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.ask(1, BasicQos(prefetch_count=1, global_=True))
    consume(client)
    consume(client, "own", "o")
    client.received()
    fill(cluster, "own", b"1", b"2")
    assert bodies(client.received()) == [b"1"]
    cluster.is_held = True
    fill_home(cluster, b"x")
    cluster["n2"].turn()
    cluster.deliver("n2", "n1")
    cluster["n1"].turn()
    client.send(1, BasicAck(1))
    cluster["n1"].turn()
    cluster.crash("n2")
    cluster.is_held = False
    assert b"2" in bodies(client.received())
    client.lose()
    cluster.settle()
    cluster.check_idle()


# --- room ---


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_client_that_does_not_read_stops_its_home(cluster: Cluster, no_ack: bool) -> None:
    """At most a window is on the way; the client gets everything in order once it reads."""
    size = WINDOW_BYTES // 16
    fill(cluster, "q", *[bytes([number]) * size for number in range(40)])
    client = client_of(cluster["n1"])
    client.takes_output = False
    client.connection.is_writable = False
    consume(client, no_ack=no_ack)
    cluster.settle()
    home = cluster["n2"].home_queue("q")
    assert home.backlog.count in (40 - 17, 40 - 16)
    client.takes_output = client.connection.is_writable = True
    client.flush()
    got = [item.body[0] for item in client.received() if isinstance(item.method, BasicDeliver)]
    assert got == list(range(40))
    assert home.backlog.count == 0
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_what_is_held_for_a_slow_client_goes_back_when_it_leaves(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    client.takes_output = False
    client.connection.is_writable = False
    fill(cluster, "q", *numbered(0, 5))
    home = cluster["n2"].home_queue("q")
    assert home.unacked_count == 5
    client.lose()
    cluster.settle()
    assert (home.backlog.count, home.unacked_count) == (5, 0)
    other = client_of(cluster["n3"])
    consume(other)
    items = other.received()
    assert bodies(items) == numbered(0, 5)
    assert all(item.method.redelivered for item in items if isinstance(item.method, BasicDeliver))
    other.lose()
    cluster.settle()
    cluster.check_idle()


def test_a_congested_way_stops_deliveries(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    consume(client)
    client.received()
    cluster["n2"].congested.add("n1")
    fill(cluster, "q", b"1")
    assert bodies(client.received()) == []
    cluster["n2"].congested.clear()
    cluster["n2"].peers.relieved("n1")
    assert bodies(client.received()) == [b"1"]
