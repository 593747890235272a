"""A mirrored queue gets another master: what publishers of all nodes see of that, and who asks something."""

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    QueueBind,
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
from tests.cluster.remote.moving import MOVES, PERSISTENT, bodies, deliveries, move
from tests.kit.cluster import Cluster, client_of


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    return cluster


@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
@pytest.mark.parametrize("is_replicated", [True, False])
@pytest.mark.parametrize("is_answered", [True, False])
def test_confirms_survive(
    cluster: Cluster, how: str, node: str, is_replicated: bool, is_answered: bool
) -> None:
    """reliability §2.2 confirms_survive_stop, _policy: all is acked, nothing nacked, and all is there once, in order;
    whether the old master had it, had told the mirrors, and had answered.
    """
    client = client_of(cluster[node], 1)
    client.send(1, ConfirmSelect())
    cluster.settle()
    client.received()
    client.publish(1, "q", *bodies(1, 3), properties=PERSISTENT)
    cluster.settle()
    cluster.is_held = True
    client.publish(1, "q", *bodies(4, 6))
    client.publish(1, "q", *bodies(7, 9), properties=PERSISTENT)
    cluster[node].turn()
    cluster.deliver(node, "n1")
    if is_replicated:
        cluster["n1"].mirrors.replicate()
    if is_answered:
        cluster["n1"].turn()
        cluster.deliver("n1", node, 1)
    client.publish(1, "q", *bodies(10, 12))
    cluster[node].turn()
    cluster.is_held = False
    if how == "sigkill":
        cluster.nodes["n1"].mirrors.leading.clear()
    move(cluster, how)
    settled: set[int] = set()
    for method in client.methods():
        assert isinstance(method, BasicAck)
        settled |= set(range(1, method.delivery_tag + 1)) if method.multiple else {method.delivery_tag}
    assert settled == set(range(1, 13))
    client.send(1, BasicConsume(queue="q", no_ack=True))
    cluster.settle()
    assert [body for body, _ in deliveries(client)] == bodies(1, 12)


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
def test_rejects_survive(overflow: str, how: str, node: str) -> None:
    """reliability §2.2 rejects_survive_stop, _policy: what a full queue refuses is nacked, also where the old master's
    answer is lost and a later message got in; exactly the first one remains.
    """
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored(
        "q",
        "n1",
        "n2",
        "n3",
        arguments={
            "x-max-length": long(1),
            "x-overflow": longstr(overflow),
        },
    )
    client = client_of(cluster[node], 1)
    client.send(1, ConfirmSelect())
    client.publish(1, "q", b"first", properties=PERSISTENT)
    cluster.settle()
    assert BasicAck(1) in client.methods()
    cluster.is_held = True
    client.publish(1, "q", b"2", b"3")
    cluster[node].turn()
    cluster.deliver(node, "n1")
    cluster["n1"].mirrors.replicate()
    client.publish(1, "q", b"4")
    cluster.is_held = False
    move(cluster, how)
    client.publish(1, "q", b"5")
    cluster.settle()
    methods = client.methods()
    assert methods
    assert all(isinstance(method, BasicNack) for method in methods)
    assert sum(method.delivery_tag for method in methods if isinstance(method, BasicNack)) > 0
    client.send(1, BasicGet(queue="q", no_ack=True))
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    assert [type(each.method) for each in client.received()] == [BasicGetOk, BasicGetEmpty]


def test_what_was_refused_is_not_confirmed_since_a_later_one_came_in() -> None:
    """Publish 2 was refused, 3 came in and reached the mirrors, no answer got through: 2 must not be acked, nor 3
    enqueued again.
    """
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored(
        "q", "n1", "n2", arguments={"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    )
    client = client_of(cluster["n3"], 1)
    client.send(1, ConfirmSelect())
    client.publish(1, "q", b"1")
    cluster.settle()
    assert BasicAck(1) in client.methods()
    cluster.is_held = True
    client.publish(1, "q", b"2")
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster["n1"].home_queue("q").purge()
    client.publish(1, "q", b"3")
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster["n1"].mirrors.replicate()
    cluster.is_held = False
    move(cluster, "sigkill")
    assert client.methods() == [BasicNack(3, multiple=True, requeue=True)]
    assert cluster["n2"].home_queue("q").backlog.count == 1


def test_dead_queue_is_no_confirm(cluster: Cluster) -> None:
    """reliability §1.1 L5, §2.2 confirms_rejects dead_queue_rejects: all copies are lost: what waits is nacked."""
    client = client_of(cluster["n3"], 1)
    cluster.declare_mirrored("two", "n1", "n2")
    cluster.declare("n3", "alive", durable=True)
    client.send(1, ConfirmSelect())
    cluster.settle()
    client.received()
    cluster.is_held = True
    client.publish(1, "two", b"1", mandatory=True)
    cluster["n3"].turn()
    cluster.crash("n1")
    cluster.crash("n2")
    cluster.is_held = False
    cluster.settle()
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]


def test_two_mirrored_and_one_plain_queue(cluster: Cluster) -> None:
    """reliability §2.2 confirms_rejects mixed_dead_alive_queues_reject: a publish is acked when all queues have it."""
    cluster.declare_mirrored("other", "n1", "n2")
    cluster.declare("n1", "plain")
    client = client_of(cluster["n1"], 1)
    for queue in ("q", "other", "plain"):
        client.ask(1, QueueBind(queue=queue, exchange="amq.fanout"))
    client.send(1, ConfirmSelect())
    cluster.settle()
    client.received()
    cluster.is_ring_held = True
    client.publish(1, "", b"1", exchange="amq.fanout", properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == []
    record = cluster["n1"].broker.catalogue.queue("/", "q")
    assert record is not None
    mirrors = cluster["n1"].mirrors
    (mirror,) = [each for queue, each in mirrors.leading.values() if queue.record.name == "q"]
    assert mirror.kept == [True]
    mirror.replicate()
    cluster.settle()
    assert client.methods() == []
    (mirror,) = [each for queue, each in mirrors.leading.values() if queue.record.name == "other"]
    mirror.replicate(is_safe=False)
    cluster.settle()
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_confirm_waits_for_the_mirrors(cluster: Cluster, node: str) -> None:
    """reliability §4.4: acked when all copies have it, and if it is persistent on their disks."""
    client = client_of(cluster[node], 1)
    client.send(1, ConfirmSelect())
    cluster.settle()
    client.received()
    cluster.is_ring_held = True
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    cluster.settle()
    client.publish(1, "q", b"3")
    cluster.settle()
    assert client.methods() == []
    ((_, mirror),) = cluster["n1"].mirrors.leading.values()
    assert sorted(set(mirror.kept)) == [False, True]
    cluster.is_ring_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(3, multiple=True)]


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_transaction_waits_for_the_mirrors(cluster: Cluster, node: str) -> None:
    client = client_of(cluster[node], 1)
    assert client.ask(1, TxSelect()) == TxSelectOk()
    cluster.is_ring_held = True
    client.publish(1, "q", b"1", properties=PERSISTENT)
    client.send(1, TxCommit())
    cluster.settle()
    assert client.methods() == []
    cluster.is_ring_held = False
    cluster.settle()
    assert client.methods() == [TxCommitOk()]


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_transaction_over_a_move(cluster: Cluster, node: str) -> None:
    """A transaction's publishes go to whoever is master at the commit; a message that it acked was requeued there."""
    client = client_of(cluster[node], 1)
    client.publish(1, "q", b"0")
    client.send(1, BasicGet(queue="q"))
    cluster.settle()
    client.received()
    client.ask(1, TxSelect())
    client.publish(1, "q", b"1")
    client.send(1, BasicAck(1))
    cluster.settle()
    move(cluster, "policy")
    assert client.ask(1, TxCommit()) == TxCommitOk()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count) == (2, 0)


def test_publishers_wait_for_a_congested_ring(cluster: Cluster) -> None:
    """reliability §4.9: flow while too much is on its way to the mirrors; over when that is, or the master moves."""
    client = client_of(cluster["n1"], 1)
    ((_, mirror),) = cluster["n1"].mirrors.leading.values()
    mirror.is_congested = True
    client.publish(1, "q", b"1")
    cluster.settle()
    assert client.connection.throttle.state == "flow"
    mirror.relieve()
    cluster.settle()
    client.publish(1, "q", b"2")
    cluster.settle()
    assert not client.connection.throttle.holds
    ((_, mirror),) = cluster["n1"].mirrors.leading.values()
    mirror.is_congested = True
    client.publish(1, "q", b"3")
    cluster.settle()
    assert client.connection.throttle.holds
    move(cluster, "policy")
    assert not client.connection.throttle.holds


def test_window_goes_along(cluster: Cluster) -> None:
    """A publisher that waits for room in the window of the old master goes on when the new one has answered."""
    client = client_of(cluster["n3"], 1)
    cluster.is_held = True
    client.publish(1, "q", *[b"x" * 1_000_000] * 6)
    cluster["n3"].turn()
    assert client.connection.throttle.holds
    cluster.is_held = False
    move(cluster, "sigkill")
    assert not client.connection.throttle.holds
    assert cluster["n2"].home_queue("q").backlog.count == 6


def test_long_runs_are_sent_again_in_their_pieces(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.send(1, ConfirmSelect())
    cluster.settle()
    client.received()
    cluster.is_held = True
    client.publish(1, "q", *[b"x" * 300_000] * 9)
    cluster["n3"].turn()
    cluster.deliver("n3", "n1", 1)
    cluster["n1"].mirrors.replicate()
    cluster.is_held = False
    move(cluster, "sigkill")
    methods = client.methods()
    assert methods
    assert all(isinstance(method, BasicAck) for method in methods)
    assert cluster["n2"].home_queue("q").backlog.count == 9


def test_many_masters_one_after_the_other() -> None:
    """reliability §2.2 many_node_ha: numbers go on over masters, whoever was front end or master in between."""
    names = ("n1", "n2", "n3", "n4")
    cluster = Cluster(*names)
    cluster.declare_mirrored("q", *names)
    clients = {name: client_of(cluster[name], 1) for name in names}
    for client in clients.values():
        client.send(1, ConfirmSelect())
    cluster.settle()
    count = 0
    for home in ("n2", "n3", "n1", "n4", "n2", "n1"):
        cluster.is_held = True
        for client in clients.values():
            count += 1
            client.publish(1, "q", b"%d" % count)
        for node in cluster:
            node.turn()
        cluster.is_held = False
        cluster.transfer("q", home)
    cluster.settle()
    client = clients["n4"]
    for each in clients.values():
        assert not any(isinstance(method, BasicNack) for method in each.methods())
    client.send(1, BasicConsume(queue="q", no_ack=True))
    cluster.settle()
    assert sorted(int(body) for body, _ in deliveries(client)) == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (QueueDeclare(queue="q", passive=True), QueueDeclareOk("q", 1, 0)),
        (QueueDeclare(queue="q", durable=True), QueueDeclareOk("q", 1, 0)),
        (BasicGet(queue="q"), BasicGetOk(1, True, "", "q", 0)),
        (BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk("t")),
        (QueuePurge(queue="q"), QueuePurgeOk(1)),
        (QueueDelete(queue="q"), QueueDeleteOk(1)),
        (QueueDelete(queue="q", if_empty=True), ChannelClose),
    ],
)
@pytest.mark.parametrize("how", MOVES)
@pytest.mark.parametrize("node", ["n2", "n3"])
@pytest.mark.parametrize("is_asked_before", [True, False])
def test_each_question(
    cluster: Cluster, question: QueueDeclare, answer: object, how: str, node: str, is_asked_before: bool
) -> None:
    """amqp-behaviour §9.4: asked of the old master, or while there is none: the successor answers."""
    client = client_of(cluster[node], 1)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    if is_asked_before:
        cluster.is_held = True
        client.send(1, question)
        cluster[node].turn()
        cluster.is_held = False
    elif how != "policy":
        cluster.is_ring_held = True
        cluster.crash("n1")
        cluster.settle()
        client.send(1, question)
        cluster.settle()
        assert client.methods() == []
        cluster.is_ring_held = False
        cluster.settle()
    else:
        client.send(1, question)
    if "n1" in cluster.nodes:
        move(cluster, how)
    got = client.methods()
    assert got
    assert got[0] == answer or (isinstance(answer, type) and isinstance(got[0], answer))


def test_channel_closes_while_its_question_is_asked_again(cluster: Cluster) -> None:
    for question in (
        BasicGet(queue="q"),
        BasicConsume(queue="q", consumer_tag="t"),
        QueuePurge(queue="q"),
        QueueDeclare(queue="q", passive=True),
    ):
        client = client_of(cluster["n3"], 1)
        client.publish(1, "q", b"1")
        cluster.settle()
        cluster.is_held = True
        client.send(1, question)
        cluster["n3"].turn()
        client.lose()
        cluster.is_held = False
        home = "n2" if cluster["n1"].mirrors.leading else "n1"
        cluster.transfer("q", home)
        cluster.check_idle()
        queue = cluster[home].home_queue("q")
        assert (len(queue.consumers), queue.unacked_count) == (0, 0)


def test_delete_that_the_old_master_had_begun(cluster: Cluster) -> None:
    """A delete is answered once, whether the deletion or the move was first."""
    client = client_of(cluster["n3"], 1)
    client.publish(1, "q", b"1")
    cluster.settle()
    cluster.is_held = True
    client.send(1, QueueDelete(queue="q"))
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster.is_held = False
    cluster.crash("n1")
    cluster.settle()
    (answer,) = client.methods()
    assert isinstance(answer, QueueDeleteOk)
    assert cluster["n2"].broker.catalogue.queue("/", "q") is None
    cluster.check_idle()


def test_channel_close_returns_nothing_to_the_old_master(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", b"1", b"2")
    cluster.settle()
    move(cluster, "sigkill")
    client.received()
    assert client.ask(1, ChannelClose(200, "", 0, 0)) == ChannelCloseOk()
    home = cluster["n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count, len(home.consumers)) == (2, 0, 0)
    cluster.check_idle()
