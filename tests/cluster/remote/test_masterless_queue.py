"""A mirrored queue without a master: flushing for a moment, or down until a node is back (amqp-behaviour §9.4)."""

import pytest

from cluster.remote.masterless_queue import ANSWER_S, RESEND_S, MasterlessQueue
from node.amqp.field_table import boolean, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    TxCommit,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.kit.cluster import Cluster, client_of

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2")
    return cluster


def flushing(cluster: Cluster) -> None:
    """The master dies, and nothing more happens."""
    cluster.is_ring_held = True
    cluster.crash("n1")
    cluster.settle()
    assert isinstance(cluster["n3"].broker.vhosts["/"].queues["q"], MasterlessQueue)


def down(cluster: Cluster) -> None:
    """Every copy is gone, for now: their nodes were stopped, the master's last."""
    cluster.stop("n2")
    cluster.settle()
    cluster.stop("n1")
    cluster.settle()
    queue = cluster["n3"].broker.vhosts["/"].queues["q"]
    assert isinstance(queue, MasterlessQueue)
    assert queue.is_down


def go_on(cluster: Cluster) -> None:
    """Give the queue a master again."""
    cluster.is_ring_held = False
    cluster.settle()


def test_publishes_wait_for_a_master(cluster: Cluster) -> None:
    """reliability §4.4: master lost: wait and resend."""
    client = client_of(cluster["n3"], 1)
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    flushing(cluster)
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    cluster.advance(RESEND_S - 1)
    assert client.methods() == []
    go_on(cluster)
    assert client.methods() == [BasicAck(2, multiple=True)]
    assert cluster["n2"].home_queue("q").backlog.count == 2


def test_publishes_are_nacked_when_it_takes_too_long(cluster: Cluster) -> None:
    """reliability §4.4: nack after T_resend (30 s); from then on at once, until there is a master."""
    client = client_of(cluster["n3"], 1)
    client.ask(1, ConfirmSelect())
    flushing(cluster)
    client.publish(1, "q", b"1")
    cluster.advance(RESEND_S + 0.001)
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]
    client.publish(1, "q", b"2")
    assert client.methods() == [BasicNack(2, multiple=True, requeue=True)]
    go_on(cluster)
    client.publish(1, "q", b"3")
    assert client.methods() == [BasicAck(3)]
    assert cluster["n2"].home_queue("q").backlog.count == 1


def test_publishers_wait_when_too_much_waits(cluster: Cluster) -> None:
    """reliability §4.4: bounded as a window is, confirm mode or not."""
    client = client_of(cluster["n3"], 1)
    flushing(cluster)
    client.publish(1, "q", *[b"x" * 1_000_000] * 6)
    assert client.connection.throttle.state == "flow"
    go_on(cluster)
    assert not client.connection.throttle.holds
    assert cluster["n2"].home_queue("q").backlog.count == 6


def test_publishers_go_on_when_it_takes_too_long(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    flushing(cluster)
    client.publish(1, "q", *[b"x" * 1_000_000] * 6)
    cluster.advance(RESEND_S + 1)
    assert not client.connection.throttle.holds
    client.publish(1, "q", *[b"x" * 1_000_000] * 6)
    cluster.settle()
    assert not client.connection.throttle.holds


def test_publishes_to_a_queue_that_is_down(cluster: Cluster) -> None:
    """§9.4: nacked, no return even if mandatory; those that waited are too."""
    client = client_of(cluster["n3"], 1)
    client.ask(1, ConfirmSelect())
    cluster.stop("n2")
    cluster.settle()
    cluster.is_held = True
    client.publish(1, "q", b"1", mandatory=True)
    cluster["n3"].turn()
    cluster.stop("n1")
    cluster.is_held = False
    cluster.settle()
    client.publish(1, "q", b"2", mandatory=True)
    client.publish(1, "q", b"3", mandatory=True)
    methods = client.methods()
    assert methods == [BasicNack(1, multiple=True, requeue=True), *methods[1:]]
    assert not any(isinstance(method, BasicReturn) for method in methods)
    assert isinstance(methods[-1], BasicNack)
    assert methods[-1].delivery_tag == 3


def test_transaction_with_a_queue_that_is_down(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.ask(1, TxSelect())
    down(cluster)
    client.publish(1, "q", b"1")
    assert client.refusal(TxCommit()) == (406, "PRECONDITION_FAILED - partial tx completion")


@pytest.mark.parametrize(
    "question",
    [
        QueueDeclare(queue="q", passive=True),
        QueueDeclare(queue="q", durable=True),
        BasicGet(queue="q"),
        BasicConsume(queue="q"),
        QueuePurge(queue="q"),
    ],
)
@pytest.mark.parametrize("is_down", [True, False])
def test_questions_wait_and_fail(
    cluster: Cluster, question: QueueDeclare | BasicGet | BasicConsume | QueuePurge, is_down: bool
) -> None:
    """§9.4: it hangs, then 404; reliability §2.2 promote_on_shutdown, promote_on_failure, force_delete_if_no_master."""
    client = client_of(cluster["n3"], 1)
    if is_down:
        down(cluster)
    else:
        flushing(cluster)
    client.send(1, question)
    cluster.advance(ANSWER_S - 1)
    assert client.methods() == []
    cluster.advance(1.1)
    (answer,) = client.methods()
    assert isinstance(answer, ChannelClose)
    text = (
        "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor"
        if is_down
        else "NOT_FOUND - failed to perform operation on queue 'q' in vhost '/' due to timeout"
    )
    assert (answer.reply_code, answer.reply_text) == (404, text)


def test_question_is_answered_when_the_node_is_back(cluster: Cluster) -> None:
    """§9.4 [E: answered after start_app]; reliability §2.2 promote_on_shutdown: 404 until A is back, then 10."""
    client = client_of(cluster["n3"], 1)
    client.publish(1, "q", *[b"x"] * 10, properties=PERSISTENT)
    cluster.settle()
    down(cluster)
    client.send(1, QueueDeclare(queue="q", passive=True))
    cluster.advance(30)
    assert client.methods() == []
    cluster.start("n1")
    assert client.methods() == [QueueDeclareOk("q", 10, 0)]


def test_consumers_idle_and_go_on(cluster: Cluster) -> None:
    """§9.4: existing consumers get no cancel; deliveries resume by themselves, redelivered. One that asked for it
    is told.
    """
    client, told = client_of(cluster["n3"], 1), client_of(cluster["n3"], 1)
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    told.send(
        1, BasicConsume(queue="q", consumer_tag="t", arguments={"x-cancel-on-ha-failover": boolean(True)})
    )
    cluster.settle()
    assert told.methods() == [BasicConsumeOk("t")]
    client.publish(1, "q", b"1", b"2", properties=PERSISTENT)
    cluster.settle()
    client.received()
    told.received()
    down(cluster)
    assert told.methods() == [BasicCancel("t", nowait=True)]
    cluster.advance(300)
    assert client.methods() == []
    cluster.start("n1")
    got = client.received()
    assert [each.body for each in got] == [b"1", b"2"]
    assert all(isinstance(each.method, BasicDeliver) and each.method.redelivered for each in got)


@pytest.mark.parametrize("is_down", [True, False])
def test_cancel(cluster: Cluster, is_down: bool) -> None:
    """A consumer whose queue has no home is cancelled at once, and not attached again."""
    client = client_of(cluster["n3"], 1)
    client.ask(1, BasicConsume(queue="q", consumer_tag="t"))
    if is_down:
        down(cluster)
    else:
        flushing(cluster)
    assert client.ask(1, BasicCancel("t")) == BasicCancelOk("t")
    if is_down:
        cluster.start("n1")
    go_on(cluster)
    assert len(cluster["n1" if is_down else "n2"].home_queue("q").consumers) == 0
    client.lose()
    cluster.settle()
    cluster.check_idle()


@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("is_abrupt", [True, False])
def test_channel_and_connection_close(cluster: Cluster, is_down: bool, is_abrupt: bool) -> None:
    """With a consumer, an unacked delivery, a publish and a question under way; nobody is left with any of it."""
    client = client_of(cluster["n3"], 1, 2)
    client.send(1, ConfirmSelect())
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    client.received()
    if is_down:
        down(cluster)
    else:
        flushing(cluster)
    client.publish(1, "q", b"2")
    if is_abrupt:
        client.send(2, BasicGet(queue="q"))
        client.lose()
    else:
        client.received()
        assert client.ask(1, ChannelClose(200, "", 0, 0)) == ChannelCloseOk()
    if is_down:
        cluster.start("n1")
    go_on(cluster)
    home = cluster["n1" if is_down else "n2"].home_queue("q")
    assert (home.backlog.count, home.unacked_count, len(home.consumers)) == (1 if is_down else 2, 0, 0)
    client.lose()
    cluster.settle()
    cluster.check_idle()


def test_force_delete_if_no_master(cluster: Cluster) -> None:
    """§9.4, reliability §2.2 force_delete_if_no_master: if_empty → 406, if_unused and plain delete, the count is 0."""
    client = client_of(cluster["n3"], 1, 2, 3)
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    consumer = client_of(cluster["n3"], 1)
    consumer.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    consumer.received()
    down(cluster)
    assert client.refusal(QueueDelete(queue="q", if_empty=True)) == (
        406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty",
    )
    assert client.ask(2, QueueDelete(queue="q", if_unused=True)) == QueueDeleteOk(0)
    assert consumer.methods() == [BasicCancel("t", nowait=True)]
    assert cluster["n3"].broker.catalogue.queue("/", "q") is None
    assert client.ask(3, QueueDeclare(queue="q", durable=True)) == QueueDeclareOk("q", 0, 0)


def test_delete_while_flushing_waits(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.publish(1, "q", b"1")
    cluster.settle()
    flushing(cluster)
    client.send(1, QueueDelete(queue="q"))
    cluster.settle()
    assert client.methods() == []
    go_on(cluster)
    assert client.methods() == [QueueDeleteOk(1)]


@pytest.mark.parametrize("is_down", [True, False])
def test_deleted_by_somebody_else(cluster: Cluster, is_down: bool) -> None:
    """reliability §1.1 L5: no master has had what waits here: a nack; who asks, 404; consumers are cancelled."""
    client = client_of(cluster["n3"], 1, 2, 3, 4)
    client.ask(1, ConfirmSelect())
    client.ask(1, BasicConsume(queue="q", consumer_tag="t"))
    if is_down:
        down(cluster)
    else:
        flushing(cluster)
        client.publish(1, "q", b"1")
    other = client_of(cluster["n3"], 1)
    other.send(1, BasicGet(queue="q"))
    cluster.settle()
    deleting = client_of(cluster["n3"], 1)
    deleting.send(1, QueueDelete(queue="q"))
    cluster.settle()
    if not is_down:
        from node.catalogue.commands import DeleteQueue

        cluster.submit(DeleteQueue("/", "q"))
    assert deleting.methods() == [QueueDeleteOk(0)]
    (close,) = other.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_text == "NOT_FOUND - no queue 'q' in vhost '/'"
    nacked = [] if is_down else [BasicNack(1, multiple=True, requeue=True)]
    assert client.methods() == [BasicCancel("t", nowait=True), *nacked]


def test_flushing_then_down_then_back(cluster: Cluster) -> None:
    """The second copy dies before the flush is over."""
    client = client_of(cluster["n3"], 1, 2)
    client.ask(1, ConfirmSelect())
    client.ask(2, BasicConsume(queue="q", consumer_tag="t"))
    client.publish(1, "q", b"1", properties=PERSISTENT)
    cluster.settle()
    client.received()
    flushing(cluster)
    client.publish(1, "q", b"2", properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == []
    cluster.crash("n2")
    cluster.settle()
    assert client.methods() == [BasicNack(2, multiple=True, requeue=True)]
    go_on(cluster)
    cluster.start("n1")
    got = client.received()
    assert [
        (each.body, each.method.redelivered) for each in got if isinstance(each.method, BasicDeliver)
    ] == [(b"1", True)]


def test_dead_letters_wait_for_their_queue() -> None:
    """A dead-letter queue without a master: what died stays where it was, and others get it once."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("dlq", "n1", "n2")
    client = client_of(cluster["n3"], 1)
    from node.amqp.methods import QueueBind

    for queue in ("dlq", "also"):
        if queue == "also":
            client.ask(1, QueueDeclare(queue="also", durable=True))
        client.ask(1, QueueBind(queue=queue, exchange="amq.fanout"))
    arguments = {"x-dead-letter-exchange": longstr("amq.fanout")}
    client.ask(1, QueueDeclare(queue="source", durable=True, arguments=arguments))
    cluster.stop("n2")
    cluster.settle()
    cluster.stop("n1")
    cluster.settle()
    client.publish(1, "source", b"1", properties=PERSISTENT)
    client.send(1, BasicGet(queue="source"))
    client.send(1, BasicNack(1, requeue=False))
    cluster.settle()
    cluster.advance(10)
    assert cluster["n3"].home_queue("also").backlog.count == 0
    cluster.start("n1")
    cluster.advance(2)
    assert cluster["n3"].home_queue("also").backlog.count == 1
    assert cluster["n1"].home_queue("dlq").backlog.count == 1
