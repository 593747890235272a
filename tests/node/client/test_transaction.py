"""Transactions (amqp-behaviour §4.4)."""

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicNack,
    BasicReject,
    BasicReturn,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    Method,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from node.client import transaction
from tests.kit.world import Client, World, check_invariants


def in_transaction(*bodies: bytes, arguments: Table | None = None) -> Client:
    """A client with an open transaction, a consumer of the queue q, and these messages with it."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q", arguments=arguments or {}))
    client.publish(1, "q", *bodies)
    client.received()
    assert client.ask(1, TxSelect()) == TxSelectOk()
    if bodies:
        client.send(1, BasicConsume(queue="q", consumer_tag="t"))
        client.received()
    return client


def counts(client: Client) -> tuple[int, int]:
    """Ready and unacknowledged."""
    check_invariants(client.world)
    queue = client.world.queue("q")
    return queue.backlog.count, queue.unacked_count


def test_publishes_wait_for_the_commit() -> None:
    client = in_transaction()
    client.publish(1, "q", b"1", b"2")
    assert counts(client) == (0, 0)
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert counts(client) == (2, 0)
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert counts(client) == (2, 0)


def test_a_rollback_drops_publishes() -> None:
    client = in_transaction()
    client.publish(1, "q", b"1")
    assert client.ask(1, TxRollback()) == TxRollbackOk()
    client.ask(1, TxCommit())
    assert counts(client) == (0, 0)


def test_returns_come_at_the_commit() -> None:
    client = in_transaction()
    client.publish(1, "nowhere", b"x", mandatory=True)
    assert client.received() == []
    client.send(1, TxCommit())
    assert [type(method) for method in client.methods()] == [BasicReturn, TxCommitOk]


def test_what_is_wrong_is_told_at_once() -> None:
    """§4.4: permission, exchange and properties are checked immediately."""
    client = in_transaction()
    client.publish(1, "k", b"x", exchange="nope")
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 404


def test_settlements_wait_for_the_commit() -> None:
    client = in_transaction(b"1", b"2", b"3", b"4")
    client.send(1, BasicAck(1))
    client.send(1, BasicReject(2, requeue=False))
    client.send(1, BasicNack(3, requeue=True))
    client.received()
    assert counts(client) == (0, 4)
    client.send(1, TxCommit())
    assert client.bodies() == [b"3"]
    assert counts(client) == (0, 2)


def test_settled_tags_leave_at_once() -> None:
    """§4.4: double ack inside tx → 406."""
    client = in_transaction(b"1")
    client.send(1, BasicAck(1))
    answer = client.ask(1, BasicAck(1))
    assert isinstance(answer, ChannelClose)
    assert answer.reply_text == "PRECONDITION_FAILED - unknown delivery tag 1"
    assert counts(client) == (1, 0)


def test_a_rollback_takes_settlements_back() -> None:
    """§4.4: acked messages return to the unacked set, not requeued."""
    client = in_transaction(b"1", b"2", b"3")
    client.send(1, BasicAck(2, multiple=True))
    client.send(1, BasicReject(3))
    assert client.ask(1, TxRollback()) == TxRollbackOk()
    assert counts(client) == (0, 3)
    client.send(1, BasicAck(3, multiple=True))
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert counts(client) == (0, 0)


def test_publishes_come_before_settlements() -> None:
    client = in_transaction(b"1")
    client.send(1, BasicNack(1, requeue=True))
    client.publish(1, "q", b"new")
    client.send(1, TxCommit())
    assert client.bodies() == [b"1", b"new"]


def test_a_refusal_fails_the_commit_and_nothing_is_undone() -> None:
    """§4.4: any rejection → 406 (90,20), not atomic across queues."""
    client = in_transaction(arguments={"x-max-length": long(1), "x-overflow": longstr("reject-publish")})
    client.publish(1, "q", b"1", b"2")
    assert client.ask(1, TxCommit()) == ChannelClose(
        406, "PRECONDITION_FAILED - partial tx completion", 90, 20
    )
    assert counts(client) == (1, 0)


def test_a_queue_that_is_gone_by_the_commit() -> None:
    client = in_transaction()
    client.send(1, QueueDeclare(queue="dead"))
    arguments = {
        "x-max-length": long(0),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("dead"),
    }
    client.send(1, QueueDeclare(queue="limited", arguments=arguments))
    client.publish(1, "limited", b"x")
    client.send(1, QueueDelete(queue="limited"))
    client.received()
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert client.world.queue("dead").backlog.count == 0


def test_a_mandatory_message_whose_queue_is_gone_comes_back_at_the_commit() -> None:
    """§4.4: routed to names at the publish, which are looked up at the commit."""
    client = in_transaction()
    client.publish(1, "q", b"x", mandatory=True)
    client.publish(1, "q", b"y")
    client.send(1, QueueDelete(queue="q"))
    client.received()
    client.send(1, TxCommit())
    came = client.received()
    assert [(type(each.method), each.body) for each in came] == [(BasicReturn, b"x"), (TxCommitOk, b"")]
    assert came[0].method == BasicReturn(312, "NO_ROUTE", "", "q")


def test_a_queue_that_was_declared_again_by_the_commit() -> None:
    client = in_transaction()
    client.publish(1, "q", b"x", mandatory=True)
    client.send(1, QueueDelete(queue="q"))
    client.send(1, QueueDeclare(queue="q"))
    client.received()
    assert client.ask(1, TxCommit()) == TxCommitOk()
    assert counts(client) == (1, 0)


@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_without_select(method: Method) -> None:
    client = World().client()
    assert client.ask(1, method) == ChannelClose(
        406, "PRECONDITION_FAILED - channel is not transactional", 90, method.method_id
    )


def test_modes_exclude_each_other() -> None:
    """§4.3, §4.4."""
    client = World().client(1, 2)
    client.ask(1, TxSelect())
    assert client.ask(1, TxSelect()) == TxSelectOk()
    assert client.ask(1, ConfirmSelect()) == ChannelClose(
        406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", 85, 10
    )
    client.ask(2, ConfirmSelect())
    assert client.ask(2, ConfirmSelect()) == ConfirmSelectOk()
    assert client.ask(2, TxSelect()) == ChannelClose(
        406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", 90, 10
    )


def test_transactions_of_a_connection_hold_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/limits.md: 506, over all channels together; what was committed or rolled back no longer counts."""
    monkeypatch.setattr(transaction, "HELD_MAX_BYTES", 1000)
    client = in_transaction()
    for end in (TxCommit(), TxRollback()):
        client.publish(1, "q", bytes(500))
        client.ask(1, end)
    client.ask(2, ChannelOpen())
    client.ask(2, TxSelect())
    client.publish(1, "q", bytes(500))
    client.publish(2, "q", bytes(500))
    [closing] = [each.method for each in client.received() if isinstance(each.method, ConnectionClose)]
    assert closing.reply_text == "RESOURCE_ERROR - open transactions of this connection exceed 1000 bytes"
