"""Publishing to a queue on another node, and asking about it (amqp-behaviour §4.3, §9.1)."""

import pytest

from cluster.remote.frames import RULED_MAX_BYTES
from cluster.remote.remote_queue import WINDOW_BYTES, RemoteQueue
from node.amqp.constants import ReplyCode
from node.amqp.field_table import boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import DeleteQueue
from node.queue.run import Batch
from node.queue.storage import MemoryStorage, Waiter
from tests.kit.cluster import Cluster, Node, client_of

PERSISTENT = Properties(delivery_mode=2)


class SlowStorage(MemoryStorage):
    """A storage whose disk answers when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Waiter, int, int]] = []
        self.is_full = False

    @property
    def is_congested(self) -> bool:  # type: ignore[override]
        return self.is_full

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        self.waiting.append((waiter, first, last))

    def sync(self, *, is_safe: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for waiter, first, last in waiting:
            waiter.settle(first, last, is_safe)


def slow_disk(node: Node) -> SlowStorage:
    storage = node.broker.storage = SlowStorage()
    return storage


def remote(node: Node, name: str = "q") -> RemoteQueue:
    queue = node.broker.vhosts["/"].queues[name]
    assert isinstance(queue, RemoteQueue)
    return queue


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q", durable=True)
    return cluster


# --- confirms (§4.3) ---


def test_transient_publishes_are_confirmed_once_home_has_them(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    cluster.is_held = True
    client.publish(1, "q", b"1", b"2", b"3")
    assert client.received() == []
    assert cluster.deliver("n1", "n2") == 1
    assert client.received() == []
    cluster.is_held = False
    assert client.methods() == [BasicAck(3, multiple=True)]
    assert cluster["n2"].home_queue("q").backlog.count == 3


def test_publishes_of_one_turn_share_a_frame(cluster: Cluster) -> None:
    queue = remote(cluster["n1"])
    cluster.is_held = True
    client = client_of_held(cluster)
    before = cluster["n1"].frame_count
    for body in (b"1", b"22", b"3"):
        client.publish(1, "q", body)
    cluster["n1"].turn()
    assert cluster["n1"].frame_count == before + 1
    assert queue.is_plain
    assert not queue.is_local


def client_of_held(cluster: Cluster, node: str = "n1"):  # type: ignore[no-untyped-def]
    cluster.is_held = False
    client = client_of(cluster[node])
    cluster.is_held = True
    return client


def test_persistent_publishes_are_confirmed_once_home_has_synced_them(cluster: Cluster) -> None:
    storage = slow_disk(cluster["n2"])
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    assert client.received() == []
    client.publish(1, "q", b"3")
    assert client.methods() == [BasicAck(3)]
    storage.sync()
    assert client.methods() == [BasicAck(2, multiple=True)]


def test_what_home_could_not_keep_is_nacked(cluster: Cluster) -> None:
    storage = slow_disk(cluster["n2"])
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    client.publish(1, "q", b"1", properties=PERSISTENT)
    assert client.received() == []
    storage.sync(is_safe=False)
    (nack,) = client.methods()
    assert isinstance(nack, BasicNack)
    assert nack.delivery_tag == 1


def test_refusals_come_back_by_index(cluster: Cluster) -> None:
    """§5.4: reject-publish nacks what finds no room, and only that."""
    arguments = {"x-max-length": long(2), "x-overflow": longstr("reject-publish")}
    cluster.declare("n2", "short", arguments)
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    client.publish(1, "short", b"1", b"2", b"3", b"4")
    assert client.methods() == [
        BasicAck(2, multiple=True),
        BasicNack(3, requeue=True),
        BasicNack(4, requeue=True),
    ]


def test_refusals_within_one_run_are_told_apart(cluster: Cluster) -> None:
    arguments = {"x-max-length-bytes": long(3), "x-overflow": longstr("reject-publish")}
    cluster.declare("n2", "short", arguments)
    queue = remote(cluster["n1"], "short")
    heard: list[tuple[list[int], bool]] = []
    envelope, contents = run_of_bodies(b"11", b"22", b"3")
    queue.publish(Batch(envelope, contents, -1), pending_publish(3, heard))
    cluster.settle()
    assert heard == [([1], False)]


def run_of_bodies(*bodies: bytes):  # type: ignore[no-untyped-def]
    from tests.kit.messages import content, envelope

    return envelope(), [content(body) for body in bodies]


def pending_publish(count: int, heard: list[tuple[list[int], bool]]):  # type: ignore[no-untyped-def]
    from node.queue.pending_publish import PendingPublish

    made = PendingPublish(count)
    made.expect()
    made.end(lambda done: heard.append((sorted(done.refused), done.is_lost)))
    return made


def test_long_runs_are_cut_and_answered_once(cluster: Cluster) -> None:
    """At most 16 KiB of contents are in a frame for a queue with a limit; a single bigger message goes alone."""
    arguments = {"x-max-length": long(4), "x-overflow": longstr("reject-publish")}
    cluster.declare("n2", "short", arguments)
    queue = remote(cluster["n1"], "short")
    heard: list[tuple[list[int], bool]] = []
    half = RULED_MAX_BYTES // 2 - 100
    envelope, contents = run_of_bodies(*[bytes(half)] * 5, bytes(RULED_MAX_BYTES * 2))
    before = cluster["n1"].frame_count
    queue.publish(Batch(envelope, contents, -1), pending_publish(6, heard))
    cluster["n1"].turn()
    assert cluster["n1"].frame_count == before + 4
    cluster.settle()
    assert heard == [([4, 5], False)]
    cluster.check_idle()


def test_publishes_to_a_deleted_queue_are_acked(cluster: Cluster) -> None:
    """§4.3: a queue deleted while publishes to it are pending has settled them."""
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    cluster.is_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster["n1"].turn()
    cluster.frames.clear()
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert record is not None
    cluster.log.append((DeleteQueue("/", "q", uid=record.uid), "", 0, None))
    cluster.is_held = False
    assert client.methods() == [BasicAck(1)]
    cluster.check_idle()


def test_publishes_reach_home_in_order(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        client.publish(1, "q", body)
    cluster.settle()
    at_home = client_of(cluster["n2"])
    got = []
    for _ in bodies:
        at_home.send(1, BasicGet(queue="q", no_ack=True))
        got += at_home.bodies()
    assert got == bodies


def test_transactions_wait_for_home(cluster: Cluster) -> None:
    """§4.4: commit-ok comes once all queues have what was published."""
    storage = slow_disk(cluster["n2"])
    client = client_of(cluster["n1"])
    assert client.ask(1, TxSelect()) == TxSelectOk()
    client.publish(1, "q", b"1", properties=PERSISTENT)
    client.send(1, TxCommit())
    assert client.received() == []
    storage.sync()
    assert client.methods() == [TxCommitOk()]


# --- flow ---


def test_a_full_window_holds_publishers(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    cluster.is_held = True
    for _ in range(5):
        client.publish(1, "q", bytes(WINDOW_BYTES // 4))
    cluster["n1"].turn()
    assert remote(cluster["n1"]).is_congested
    assert cluster["n1"].peers.is_congested
    assert not client.connection.is_reading
    cluster.is_held = False
    cluster.settle()
    assert client.connection.is_reading
    assert not remote(cluster["n1"]).is_congested
    assert not cluster["n1"].peers.is_congested
    assert cluster["n2"].home_queue("q").backlog.count == 5
    cluster.check_idle()


def test_a_congested_way_holds_publishers(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    cluster["n1"].congested.add("n2")
    client.publish(1, "q", b"1")
    cluster.settle()
    assert not client.connection.is_reading
    cluster["n1"].congested.clear()
    cluster["n1"].peers.relieved("n2")
    cluster.settle()
    assert client.connection.is_reading
    cluster.check_idle()


def test_a_slow_disk_at_home_holds_publishers_that_do_not_wait_for_confirms(cluster: Cluster) -> None:
    storage = slow_disk(cluster["n2"])
    storage.is_full = True
    client = client_of(cluster["n1"])
    for _ in range(5):
        client.publish(1, "q", bytes(WINDOW_BYTES // 4))
    cluster.settle()
    assert not client.connection.is_reading
    storage.is_full = False
    cluster["n2"].broker.relieved()
    cluster.settle()
    assert client.connection.is_reading
    cluster.check_idle()


# --- asking (§3.7, §3.11, §4.5) ---


def test_declare_counts_at_home(cluster: Cluster) -> None:
    client_of(cluster["n2"]).publish(1, "q", b"1", b"2")
    client = client_of(cluster["n1"])
    assert client.ask(1, QueueDeclare(queue="q", passive=True)) == QueueDeclareOk("q", 2, 0)
    assert client.ask(1, QueueDeclare(queue="q", durable=True)) == QueueDeclareOk("q", 2, 0)


def test_get_with_and_without_ack(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    assert client.ask(1, BasicGet(queue="q")) == BasicGetEmpty()
    client.publish(1, "q", b"1", b"2")
    client.send(1, BasicGet(queue="q"))
    (first,) = client.received()
    assert first.body == b"1"
    assert first.method == BasicGetOk(1, False, "", "q", 1)
    client.send(1, BasicGet(queue="q", no_ack=True))
    (second,) = client.received()
    assert second.body == b"2"
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (0, 1)
    client.send(1, BasicNack(1, requeue=True))
    client.send(1, BasicGet(queue="q"))
    (again,) = client.received()
    assert again.method == BasicGetOk(3, True, "", "q", 0)
    client.send(1, BasicAck(3))
    cluster.settle()
    assert (home.backlog.count, home.unacked_count) == (0, 0)


def test_a_message_fetched_for_a_channel_that_is_gone_goes_back(cluster: Cluster) -> None:
    for no_ack in (False, True):
        client_of(cluster["n2"]).publish(1, "q", b"1")
        client = client_of(cluster["n1"])
        cluster.is_held = True
        client.send(1, BasicGet(queue="q", no_ack=no_ack))
        cluster["n1"].turn()
        client.lose()
        cluster.is_held = False
        cluster.settle()
        home = cluster["n2"].home_queue("q")
        assert (home.backlog.count, home.unacked_count) == (1, 0)
        other = client_of(cluster["n1"])
        other.send(1, BasicGet(queue="q", no_ack=True))
        (item,) = other.received()
        assert item.method == BasicGetOk(1, True, "", "q", 0), "it may have been seen"
        cluster.check_idle()


def test_purge_counts_what_went(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1", b"2", b"3")
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(3)
    assert cluster["n2"].home_queue("q").backlog.count == 0


def test_delete_has_rabbitmqs_conditions_and_texts(cluster: Cluster) -> None:
    """§3.11."""
    client = client_of(cluster["n1"], 1, 2, 3)
    client.publish(1, "q", b"1")
    close = client.ask(1, QueueDelete(queue="q", if_empty=True))
    assert close == ChannelClose(406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty", 50, 40)
    consumer = client_of(cluster["n2"])
    from node.amqp.methods import BasicConsume

    consumer.send(1, BasicConsume(queue="q"))
    consumer.received()
    close = client.ask(2, QueueDelete(queue="q", if_unused=True))
    assert close == ChannelClose(406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use", 50, 40)
    assert client.ask(3, QueueDelete(queue="q")) == QueueDeleteOk(0)
    assert all("q" not in node.queue_names for node in cluster)
    cluster.check_idle()


def test_delete_counts_the_messages_that_went(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1", b"2")
    assert client.ask(1, QueueDelete(queue="q")) == QueueDeleteOk(2)
    assert client.ask(1, QueueDelete(queue="q")) == QueueDeleteOk(0)
    cluster.check_idle()


def test_two_deletions_at_once_both_succeed(cluster: Cluster) -> None:
    first, second = client_of(cluster["n1"]), client_of(cluster["n2"])
    first.publish(1, "q", b"1")
    cluster.settle()
    cluster.is_held = True
    first.send(1, QueueDelete(queue="q"))
    cluster["n1"].turn()
    second.send(1, QueueDelete(queue="q"))
    cluster.apply("n2")
    cluster.is_held = False
    assert second.methods() == [QueueDeleteOk(1)]
    assert first.methods() == [QueueDeleteOk(0)]
    cluster.check_idle()


def test_requests_end_when_the_queue_is_deleted(cluster: Cluster) -> None:
    """Whichever of the two nodes hears of it first."""
    for late in ("n1", "n2"):
        cluster = Cluster("n1", "n2")
        cluster.declare("n2", "q")
        client = client_of(cluster["n1"], 1, 2)
        cluster.is_held = True
        client.send(1, BasicGet(queue="q"))
        record = cluster["n1"].broker.catalogue.queue("/", "q")
        assert record is not None
        cluster.log.append((DeleteQueue("/", "q", uid=record.uid), "", 0, None))
        early = "n2" if late == "n1" else "n1"
        cluster.apply(early)
        cluster["n1"].turn()
        cluster.deliver("n1", "n2")
        cluster.is_held = False
        assert client.methods() == [ChannelClose(404, "NOT_FOUND - no queue 'q' in vhost '/'", 60, 70)]
        cluster.check_idle()


def test_uses_from_anywhere_keep_an_expiring_queue(cluster: Cluster) -> None:
    """§5.3: declares and gets count, publishes don't."""
    cluster.declare("n2", "brief", {"x-expires": long(1000)})
    client = client_of(cluster["n1"])
    for ask in (QueueDeclare(queue="brief", passive=True), BasicGet(queue="brief")):
        cluster.advance(0.9)
        client.ask(1, ask)
    cluster.advance(0.9)
    client.publish(1, "brief", b"1")
    cluster.advance(0.2)
    assert all("brief" not in node.queue_names for node in cluster)
    cluster.check_idle()


def test_mandatory_messages_are_routed_to_remote_queues(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1", mandatory=True)
    assert client.received() == []
    client.publish(1, "none", b"1", mandatory=True)
    (item,) = client.received()
    assert isinstance(item.method, BasicReturn)


def test_dead_letters_go_to_other_nodes_and_back(cluster: Cluster) -> None:
    """§5.5, and that a death at home of a message from afar is routed there."""
    cluster.declare("n1", "dead")
    cluster.declare(
        "n2",
        "ttl",
        {
            "x-message-ttl": long(100),
            "x-dead-letter-exchange": longstr(""),
            "x-dead-letter-routing-key": longstr("dead"),
        },
    )
    client = client_of(cluster["n1"])
    client.publish(1, "ttl", b"1", b"2")
    cluster.settle()
    cluster.advance(0.2)
    assert cluster["n1"].home_queue("dead").backlog.count == 2
    cluster.check_idle()


def test_settings_follow_policies(cluster: Cluster) -> None:
    queue = remote(cluster["n1"])
    from dataclasses import replace

    queue.apply_settings(replace(queue.settings, max_length=5), 0.0)
    assert not queue.is_plain


def test_a_queue_whose_home_is_down_answers_nothing(cluster: Cluster) -> None:
    """§9.1, for what was held on to when the home went away."""
    queue = remote(cluster["n1"])
    cluster.crash("n2")
    cluster.settle()
    heard: list[tuple[list[int], bool]] = []
    envelope, contents = run_of_bodies(b"1")
    queue.publish(Batch(envelope, contents, 1), pending_publish(1, heard))
    queue.publish(Batch(envelope, contents, 1), None)
    assert heard == [([], True)]
    from node.amqp.errors import ProtocolError

    with pytest.raises(ProtocolError) as raised:
        next(queue.counts())
    assert raised.value.code is ReplyCode.NOT_FOUND
    assert raised.value.explanation == (
        "home node 'n2' of durable queue 'q' in vhost '/' is down or inaccessible"
    )
    assert boolean(True)
    queue.close()
    assert not queue.is_congested
