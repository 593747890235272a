"""amqp-behaviour §4.3, publisher confirms, and §4.4, transactions."""

from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_METHOD
from node.amqp.field_table import long, longstr
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReject,
    BasicReturn,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDelete,
    QueueUnbind,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.conformance.queue_steps import drain, publish_burst, publish_each, ready_count
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.patience import wait_until

Names = Callable[[str], str]

PERSISTENT = Properties(delivery_mode=2)
REJECTING = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
PARTIAL = "PRECONDITION_FAILED - partial tx completion"


def confirmations(channel: Channel, count: int) -> list[BasicAck | BasicNack]:
    """The acks and nacks that settle the tags 1 to `count`, each of them exactly once."""
    waiting = set(range(1, count + 1))
    came: list[BasicAck | BasicNack] = []
    while waiting:
        arrived = channel.connection.next_frame(channel.number)
        assert arrived.type == FRAME_METHOD, str(arrived)
        method = decode_method(arrived.payload)
        assert isinstance(method, BasicAck | BasicNack), str(arrived)
        tag = method.delivery_tag
        settled = {each for each in waiting if each <= tag} if method.multiple else {tag}
        assert settled, f"{method} settles nothing"
        assert settled <= waiting, f"{method} settles a tag again, or one that was never used"
        waiting -= settled
        came.append(method)
    return came


def tags_by(kind: type[BasicAck | BasicNack], came: list[BasicAck | BasicNack]) -> set[int]:
    """The tags that confirmations of this kind settled."""
    tags: set[int] = set()
    done: set[int] = set()
    for method in came:
        tag = method.delivery_tag
        settled = set(range(1, tag + 1)) - done if method.multiple else {tag}
        done |= settled
        if isinstance(method, kind):
            tags |= settled
    return tags


# §4.3.


def test_select_is_idempotent(channel: Channel) -> None:
    """§4.3: a second confirm.select is answered and doesn't start the tags again."""
    channel.call(ConfirmSelect)
    channel.publish("", "nowhere", b"x")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1)
    channel.call(ConfirmSelect)
    channel.publish("", "nowhere", b"x")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=2)


def test_select_nowait(channel: Channel) -> None:
    """§4.3: nowait is honoured."""
    channel.send(ConfirmSelect, nowait=True)
    channel.publish("", "nowhere", b"x")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1)


def test_tags_count_publishes_after_select(connection: Connection, channel: Channel) -> None:
    """§4.3: tags start at 1 for each channel and count from the select."""
    channel.publish("", "nowhere", b"x")
    channel.publish("", "nowhere", b"x")
    channel.call(ConfirmSelect)
    channel.publish("", "nowhere", b"x")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1)
    other = connection.channel(2)
    other.call(ConfirmSelect)
    other.publish("", "nowhere", b"x")
    assert other.expect(BasicAck) == BasicAck(delivery_tag=1)


def test_without_select_there_are_no_confirms(channel: Channel) -> None:
    """§4.3: confirms are the channel's wish."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", PERSISTENT)
    assert drain(channel, queue) == [b"x"]
    channel.sync()


def test_confirm_on_a_tx_channel(channel: Channel) -> None:
    """§4.3: a channel has one of the two modes."""
    channel.call(TxSelect)
    channel.send(ConfirmSelect)
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    channel.expect_close(406, text, ConfirmSelect)


@pytest.mark.parametrize("mode", [None, 1, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_ack_when_the_queue_has_it(channel: Channel, name: Names, durable: bool, mode: int | None) -> None:
    """§4.3: transient or persistent, into a durable queue or another: acked, and it is there."""
    queue = channel.declare(name("q"), durable=durable, exclusive=True)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"x", Properties(delivery_mode=mode))
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1, multiple=False)
    assert drain(channel, queue) == [b"x"]


def test_ack_of_a_message_for_two_queues(channel: Channel, name: Names) -> None:
    """§4.3: one ack, when the last queue has it."""
    exchange = name("x")
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", auto_delete=True)
    queues = [channel.declare(name("q"), durable=durable, exclusive=True) for durable in (True, False)]
    for queue in queues:
        channel.call(QueueBind, queue=queue, exchange=exchange)
    channel.call(ConfirmSelect)
    channel.publish(exchange, "", b"x", PERSISTENT)
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1, multiple=False)
    assert [drain(channel, queue) for queue in queues] == [[b"x"], [b"x"]]
    channel.sync()


def test_ack_of_a_message_that_is_consumed_at_once(
    connection: Connection, channel: Channel, name: Names
) -> None:
    """§4.3: persistent, but consumed and auto-acked: that settles it too, once."""
    queue = channel.declare(name("q"), durable=True, exclusive=True)
    consumer = connection.channel(2)
    consumer.consume(queue, no_ack=True)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"x", PERSISTENT)
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1, multiple=False)
    assert consumer.deliver().body == b"x"
    channel.sync()


@pytest.mark.parametrize("argument", ["x-message-ttl", "x-max-length"])
def test_ack_of_a_message_that_is_dropped_at_once(channel: Channel, argument: str) -> None:
    """§4.3: what a queue drops by ttl 0, or by drop-head and length 0, is acked."""
    queue = channel.declare(exclusive=True, arguments={argument: long(0)})
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"x")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1)
    assert ready_count(channel, queue) == 0


def test_ack_when_the_queue_is_deleted_meanwhile(connection: Connection, name: Names) -> None:
    """§4.3: messages that wait in a queue that goes away are settled by acks."""
    channel, other = connection.channel(1), connection.channel(2)
    queue = channel.declare(name("q"), durable=True, exclusive=True)
    channel.call(ConfirmSelect)
    publish_burst(channel, queue, 20, PERSISTENT)
    other.send(QueueDelete, queue=queue)
    came = confirmations(channel, 20)
    assert tags_by(BasicAck, came) == set(range(1, 21))


def test_nack_when_the_queue_rejects(channel: Channel) -> None:
    """§4.3: overflow reject-publish is a nack, its requeue bit set (§0.4, trap); what was accepted is acked."""
    queue = channel.declare(exclusive=True, arguments=REJECTING)
    channel.call(ConfirmSelect)
    channel.publish("", queue, b"1")
    assert channel.expect(BasicAck) == BasicAck(delivery_tag=1)
    channel.publish("", queue, b"2")
    nack = channel.expect(BasicNack)
    assert (nack.delivery_tag, nack.requeue) == (2, True)
    assert drain(channel, queue) == [b"1"]


def test_lone_nack_without_multiple(channel: Channel) -> None:
    """§4.3: nacks above a tag that was acked settle nothing but what they own."""
    queue = channel.declare(exclusive=True, arguments=REJECTING)
    channel.call(ConfirmSelect)
    publish_burst(channel, queue, 10)
    came = confirmations(channel, 10)
    assert tags_by(BasicAck, came) == {1}
    assert tags_by(BasicNack, came) == set(range(2, 11))
    channel.sync()


def test_mixed_fan_out_is_a_nack(channel: Channel, name: Names) -> None:
    """§4.3, §5.4: one of two queues rejects: nack, though the other has it."""
    exchange = name("x")
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", auto_delete=True)
    taking = channel.declare(exclusive=True)
    refusing = channel.declare(
        exclusive=True, arguments={"x-max-length": long(0), "x-overflow": longstr("reject-publish")}
    )
    for queue in (taking, refusing):
        channel.call(QueueBind, queue=queue, exchange=exchange)
    channel.call(ConfirmSelect)
    channel.publish(exchange, "", b"x")
    assert channel.expect(BasicNack).delivery_tag == 1
    assert drain(channel, taking) == [b"x"]
    assert drain(channel, refusing) == []
    channel.sync()


def test_a_single_ack_is_not_multiple(channel: Channel) -> None:
    """§4.3: a batch of one has multiple=false, also later on."""
    channel.call(ConfirmSelect)
    for number in range(1, 6):
        channel.publish("", "nowhere", b"x")
        assert channel.expect(BasicAck) == BasicAck(delivery_tag=number, multiple=False)


def test_confirms_are_coalesced(channel: Channel, name: Names) -> None:
    """§4.3: 50 persistent messages in one write are settled by fewer acks, multiple, every tag once."""
    queue = channel.declare(name("q"), durable=True, exclusive=True)
    channel.call(ConfirmSelect)
    publish_burst(channel, queue, 50, PERSISTENT)
    came = confirmations(channel, 50)
    assert tags_by(BasicAck, came) == set(range(1, 51))
    assert len(came) < 50
    assert any(method.multiple for method in came)
    assert len(drain(channel, queue)) == 50


# §4.4.


@pytest.fixture
def tx(channel: Channel) -> Channel:
    """Channel 1, transactional."""
    channel.call(TxSelect)
    return channel


def got(channel: Channel, queue: str) -> Content:
    """A message, to be acked."""
    content = channel.get(queue, no_ack=False)
    assert content is not None
    return content


def test_tx_select_is_idempotent(tx: Channel) -> None:
    """§4.4: a second tx.select is answered and loses nothing."""
    queue = tx.declare(exclusive=True)
    tx.publish("", queue, b"x")
    tx.call(TxSelect)
    tx.call(TxCommit)
    assert drain(tx, queue) == [b"x"]


def test_tx_on_a_confirm_channel(channel: Channel) -> None:
    """§4.4: a channel has one of the two modes."""
    channel.call(ConfirmSelect)
    channel.send(TxSelect)
    channel.expect_close(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", TxSelect)


@pytest.mark.parametrize("method", [TxCommit, TxRollback])
def test_tx_without_select(channel: Channel, method: type[TxCommit | TxRollback]) -> None:
    """§4.4: commit and rollback need a select."""
    channel.send(method)
    channel.expect_close(406, "PRECONDITION_FAILED - channel is not transactional", method)


def test_publishes_wait_for_the_commit(tx: Channel) -> None:
    """§4.4: publishes are buffered, then delivered in order; a second commit brings nothing more."""
    queue = tx.declare(exclusive=True)
    tx.publish("", queue, b"1")
    tx.publish("", queue, b"2")
    assert drain(tx, queue) == []
    tx.call(TxCommit)
    assert drain(tx, queue) == [b"1", b"2"]
    tx.call(TxCommit)
    assert drain(tx, queue) == []


def test_a_bad_publish_fails_at_once(tx: Channel, name: Names) -> None:
    """§4.4: exchange and properties are checked immediately, not at the commit."""
    exchange = name("missing")
    tx.publish(exchange, "key", b"x")
    tx.expect_close(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'", BasicPublish)


def test_routing_is_computed_at_publish_time(tx: Channel, name: Names) -> None:
    """§4.4: a binding made after the publish comes too late, one taken away after it still counts."""
    exchange, queue = name("x"), tx.declare(exclusive=True)
    tx.call(ExchangeDeclare, exchange=exchange)
    tx.publish(exchange, "a", b"before the binding")
    tx.call(QueueBind, queue=queue, exchange=exchange, routing_key="a")
    tx.publish(exchange, "a", b"bound")
    tx.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="a")
    tx.call(TxCommit)
    assert drain(tx, queue) == [b"bound"]


def test_returns_come_at_the_commit(tx: Channel) -> None:
    """§4.4: mandatory messages are returned at the commit, before commit-ok."""
    tx.publish("", "nowhere", b"x", mandatory=True)
    tx.sync()
    tx.send(TxCommit)
    returned = tx.expect_content(BasicReturn)
    assert (returned.method.reply_code, returned.method.reply_text, returned.body) == (312, "NO_ROUTE", b"x")
    tx.expect(TxCommitOk)


def test_rollback_drops_publishes_and_returns(tx: Channel) -> None:
    """§4.4: nothing that was rolled back arrives or is returned, then or at the next commit."""
    queue = tx.declare(exclusive=True)
    tx.publish("", queue, b"x")
    tx.publish("", "nowhere", b"x", mandatory=True)
    tx.call(TxRollback)
    tx.call(TxCommit)
    assert drain(tx, queue) == []


def test_commit_settles_acks(connection: Connection, tx: Channel) -> None:
    """§4.4: acks count at the commit: after it the close of the channel requeues nothing."""
    queue = connection.channel(2).declare(exclusive=True)
    publisher = connection.channel(3)
    publish_each(publisher, queue, b"1", b"2")
    got(tx, queue)
    tag = got(tx, queue).method.delivery_tag
    tx.send(BasicAck, delivery_tag=tag, multiple=True)
    tx.call(TxCommit)
    tx.close()
    assert drain(publisher, queue) == []


def test_close_is_a_rollback(connection: Connection, tx: Channel) -> None:
    """§4.4: the close undoes an open transaction's acks and publishes, then requeues the unacked."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    publish_each(publisher, queue, b"1")
    tx.send(BasicAck, delivery_tag=got(tx, queue).method.delivery_tag)
    tx.publish("", queue, b"2")
    tx.sync()
    tx.close()
    content = publisher.get(queue)
    assert content is not None
    assert (content.body, content.method.redelivered) == (b"1", True)
    assert publisher.get(queue) is None


@pytest.mark.parametrize(
    "again",
    [BasicAck(delivery_tag=1), BasicReject(delivery_tag=1), BasicNack(delivery_tag=1), BasicAck(1, True)],
    ids=["ack", "reject", "nack", "ack-multiple"],
)
def test_double_ack_in_a_transaction(
    connection: Connection, tx: Channel, again: BasicAck | BasicReject | BasicNack
) -> None:
    """§4.4: a tag that was acked in the transaction is no longer outstanding: 406."""
    queue = tx.declare(exclusive=True)
    publish_each(connection.channel(2), queue, b"x")
    got(tx, queue)
    tx.send(BasicAck, delivery_tag=1)
    tx.send(again)
    tx.expect_close(406, "PRECONDITION_FAILED - unknown delivery tag 1", type(again))


def test_rollback_returns_acks_to_the_unacked(connection: Connection, tx: Channel) -> None:
    """§4.4: after a rollback acked messages are outstanding again, not requeued, and can be acked."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    publish_each(publisher, queue, b"x")
    got(tx, queue)
    tx.send(BasicAck, delivery_tag=1)
    tx.call(TxRollback)
    assert drain(publisher, queue) == []
    tx.send(BasicAck, delivery_tag=1)
    tx.call(TxCommit)
    tx.close()
    assert drain(publisher, queue) == []


def test_rollback_of_a_range_keeps_the_order(connection: Connection, tx: Channel) -> None:
    """§4.4: after the rollback of an ack of many, an ack of the first two finds both."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    publish_each(publisher, queue, b"1", b"2", b"3", b"4")
    for _ in range(4):
        got(tx, queue)
    tx.send(BasicAck, delivery_tag=3, multiple=True)
    tx.send(BasicNack, delivery_tag=4, requeue=False)
    tx.call(TxRollback)
    tx.send(BasicAck, delivery_tag=2, multiple=True)
    tx.call(TxCommit)
    tx.close()
    assert drain(publisher, queue) == [b"3", b"4"]


@pytest.mark.parametrize(
    "settle",
    [BasicNack(delivery_tag=1, requeue=True), BasicReject(delivery_tag=1, requeue=True)],
    ids=["nack", "reject"],
)
def test_requeue_waits_for_the_commit(
    connection: Connection, tx: Channel, settle: BasicNack | BasicReject
) -> None:
    """§4.4: nacks and rejects are buffered as well."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    publish_each(publisher, queue, b"x")
    got(tx, queue)
    tx.send(settle)
    tx.sync()
    assert drain(publisher, queue) == []
    tx.call(TxCommit)
    assert drain(publisher, queue) == [b"x"]


def test_dead_lettering_waits_for_the_commit(connection: Connection, tx: Channel) -> None:
    """§4.4: a reject without requeue takes effect at the commit."""
    publisher = connection.channel(2)
    grave = publisher.declare(exclusive=True)
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr(grave)}
    queue = publisher.declare(exclusive=True, arguments=arguments)
    publish_each(publisher, queue, b"x")
    got(tx, queue)
    tx.send(BasicReject, delivery_tag=1, requeue=False)
    tx.sync()
    assert drain(publisher, queue) == []
    assert drain(publisher, grave) == []
    tx.call(TxCommit)
    assert publisher.wait_get(grave).body == b"x"


def test_deliveries_are_not_transactional(connection: Connection, tx: Channel) -> None:
    """§4.4: deliveries come inside a transaction as ever."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    tx.consume(queue, no_ack=True)
    publisher.publish("", queue, b"x")
    assert tx.deliver().body == b"x"


def test_overflow_fails_the_commit(connection: Connection, tx: Channel) -> None:
    """§4.4: a rejected publish makes the commit fail; what other queues took stays with them."""
    other = connection.channel(2)
    full = other.declare(exclusive=True, arguments=REJECTING)
    taking = other.declare(exclusive=True)
    tx.publish("", full, b"1")
    tx.publish("", full, b"2")
    tx.publish("", taking, b"3")
    tx.send(TxCommit)
    tx.expect_close(406, PARTIAL, TxCommit)
    assert drain(other, full) == [b"1"]
    wait_until(lambda: drain(other, taking) == [b"3"], "the other publish is there")


def test_get_inside_a_transaction(connection: Connection, tx: Channel) -> None:
    """§4.4: basic.get isn't transactional: no_ack takes the message for good, rollback or not."""
    publisher = connection.channel(2)
    queue = publisher.declare(exclusive=True)
    publish_each(publisher, queue, b"x")
    assert tx.get(queue, no_ack=True) is not None
    tx.call(TxRollback)
    tx.close()
    assert drain(publisher, queue) == []
