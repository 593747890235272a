"""The basic class but for publish: checks, answers, and what an empty name means (amqp-behaviour §4.5–§4.12)."""

import pytest

from node.amqp.field_table import Table, boolean, long, longstr, table
from node.amqp.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    Method,
    QueueDeclare,
)
from node.catalogue.commands import SetPermission
from tests.kit.world import Client, World

REPLY_TO = "amq.rabbitmq.reply-to"
IN_USE = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def with_queue(*bodies: bytes, channels: tuple[int, ...] = (1,), arguments: Table | None = None) -> Client:
    client = World().client(*channels)
    client.send(1, QueueDeclare(queue="q", arguments=arguments or {}))
    client.publish(1, "q", *bodies)
    client.received()
    return client


# --- qos --------------------------------------------------------------------------------------------------


def test_qos() -> None:
    client = with_queue()
    assert client.ask(1, BasicQos(prefetch_count=65535)) == BasicQosOk()
    assert client.ask(1, BasicQos(prefetch_count=5, global_=True)) == BasicQosOk()
    assert client.refusal(BasicQos(prefetch_size=1)) == (540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)")


# --- consume ----------------------------------------------------------------------------------------------


def test_a_tag_is_made_where_none_is_given() -> None:
    """§4.6 row `empty tag`; with nowait the client learns it from deliver."""
    client = with_queue(b"x")
    client.send(1, BasicConsume(queue="q", nowait=True))
    (item,) = client.received()
    assert isinstance(item.method, BasicDeliver)
    assert item.method.consumer_tag.startswith("amq.ctag-")
    answer = client.ask(1, BasicConsume(queue="q"))
    assert isinstance(answer, BasicConsumeOk)
    assert answer.consumer_tag.startswith("amq.ctag-")
    assert answer.consumer_tag != item.method.consumer_tag


def test_consume_ok_comes_before_the_first_delivery() -> None:
    """§4.6 below the table."""
    client = with_queue(b"x")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    assert [type(method) for method in client.methods()] == [BasicConsumeOk, BasicDeliver]


@pytest.mark.parametrize("queue", ["q", REPLY_TO])
def test_a_tag_in_use(queue: str) -> None:
    """§4.6 row `tag in use on this channel`: the connection pays."""
    client = with_queue()
    client.ask(1, BasicConsume(queue="q", consumer_tag="t"))
    answer = client.refusal(BasicConsume(queue=queue, consumer_tag="t", no_ack=True))
    assert answer == (530, "NOT_ALLOWED - attempt to reuse consumer tag 't'")


def test_the_same_tag_on_another_channel() -> None:
    client = with_queue(channels=(1, 2))
    for channel in (1, 2):
        assert client.ask(channel, BasicConsume(queue="q", consumer_tag="t")) == BasicConsumeOk("t")


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_exclusive_use(first: bool, second: bool, is_refused: bool) -> None:
    """§4.6 row `exclusive while other consumers …`."""
    client = with_queue(channels=(1, 2))
    client.ask(1, BasicConsume(queue="q", exclusive=first))
    method = BasicConsume(queue="q", exclusive=second)
    if is_refused:
        assert client.refusal(method, 2) == (403, IN_USE)
    else:
        assert isinstance(client.ask(2, method), BasicConsumeOk)


def test_exclusive_use_ends_with_the_consumer() -> None:
    client = with_queue(channels=(1, 2))
    client.ask(1, BasicConsume(queue="q", consumer_tag="t", exclusive=True))
    client.ask(1, BasicCancel("t"))
    assert isinstance(client.ask(2, BasicConsume(queue="q")), BasicConsumeOk)


def test_exclusive_on_a_queue_with_a_single_active_consumer() -> None:
    """§4.6 row `exclusive on a SAC queue`."""
    client = with_queue(arguments={"x-single-active-consumer": boolean(True)})
    assert client.refusal(BasicConsume(queue="q", exclusive=True)) == (403, IN_USE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x-priority": longstr("high")},
            "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
        ),
        (
            {"x-cancel-on-ha-failover": longstr("yes")},
            "invalid arg 'x-cancel-on-ha-failover' for queue 'q' in vhost '/': {unacceptable_type,longstr}",
        ),
        (
            {"x-stream-offset": long(1)},
            "invalid arg 'x-stream-offset' for queue 'q' in vhost '/' of queue type rabbit_classic_queue",
        ),
    ],
)
def test_consume_arguments(arguments: Table, text: str) -> None:
    """§4.6 rows of arguments."""
    client = with_queue()
    assert client.refusal(BasicConsume(queue="q", arguments=arguments)) == (
        406,
        f"PRECONDITION_FAILED - {text}",
    )


def test_unknown_arguments_and_no_local_are_ignored() -> None:
    client = with_queue(b"x")
    client.send(1, BasicConsume(queue="q", no_local=True, arguments={"mine": table({})}))
    assert client.bodies() == [b"x"]


def test_consumer_priority() -> None:
    client = with_queue()
    client.ask(1, BasicConsume(queue="q", consumer_tag="low", no_ack=True))
    client.ask(
        1, BasicConsume(queue="q", consumer_tag="high", no_ack=True, arguments={"x-priority": long(1)})
    )
    client.publish(1, "q", b"1", b"2")
    tags = [method.consumer_tag for method in client.methods() if isinstance(method, BasicDeliver)]
    assert tags == ["high", "high"]


# --- cancel -----------------------------------------------------------------------------------------------


def test_cancel() -> None:
    client = with_queue()
    client.ask(1, BasicConsume(queue="q", consumer_tag="t"))
    client.send(1, BasicCancel("t", nowait=True))
    assert client.ask(1, BasicConsume(queue="q", consumer_tag="t")) == BasicConsumeOk("t")
    assert client.ask(1, BasicCancel("t")) == BasicCancelOk("t")
    client.publish(1, "q", b"x")
    assert client.received() == []


def test_cancel_of_an_unknown_tag() -> None:
    """§4.6 last row; §2.4, traps: on a different channel it cancels nothing."""
    client = with_queue(channels=(1, 2))
    client.ask(1, BasicConsume(queue="q", consumer_tag="t"))
    assert client.ask(2, BasicCancel("t")) == BasicCancelOk("t")
    assert len(client.world.queue("q").consumers) == 1


def test_cancel_ok_comes_before_an_auto_delete_queue_disappears() -> None:
    """§3.12."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q", auto_delete=True))
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    assert client.ask(1, BasicCancel("t")) == BasicCancelOk("t")
    assert client.world.queue_names == set()


# --- get --------------------------------------------------------------------------------------------------


def test_get() -> None:
    client = with_queue(b"1", b"2")
    assert client.ask(1, BasicGet(queue="q")) == BasicGetOk(1, False, "", "q", 1)
    assert client.world.queue("q").unacked_count == 1
    assert client.ask(1, BasicGet(queue="q", no_ack=True)) == BasicGetOk(2, False, "", "q", 0)
    assert client.world.queue("q").unacked_count == 1
    assert client.ask(1, BasicGet(queue="q")) == BasicGetEmpty()


def test_get_minds_neither_prefetch_nor_exclusive_consumers() -> None:
    """§4.5."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicQos(prefetch_count=1))
    client.send(1, BasicConsume(queue="q", exclusive=True))
    client.received()
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    client.ask(1, BasicQos(prefetch_count=1, global_=True))
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)


# --- recover ----------------------------------------------------------------------------------------------


def test_recover() -> None:
    """§4.10 row recover: recover-ok may precede the redeliveries."""
    client = with_queue(b"1", b"2")
    client.send(1, BasicGet(queue="q"))
    client.send(1, BasicGet(queue="q"))
    client.received()
    assert client.ask(1, BasicRecover(requeue=True)) == BasicRecoverOk()
    assert client.ask(1, BasicGet(queue="q")) == BasicGetOk(3, True, "", "q", 1)
    client.send(1, BasicRecoverAsync(requeue=True))
    assert client.received() == []
    assert client.world.queue("q").backlog.count == 2


@pytest.mark.parametrize("method", [BasicRecover(requeue=False), BasicRecoverAsync(requeue=False)])
def test_recover_without_requeue(method: Method) -> None:
    assert with_queue().refusal(method) == (540, "NOT_IMPLEMENTED - requeue=false")


# --- names and permissions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [BasicGet(queue="nope"), BasicConsume(queue="nope"), BasicGet(queue="q\r\n")]
)
def test_a_missing_queue(method: BasicGet | BasicConsume) -> None:
    """§3.1: line breaks are not stripped in get and consume."""
    text = f"NOT_FOUND - no queue '{method.queue}' in vhost '/'"
    assert with_queue().refusal(method) == (404, text)


@pytest.mark.parametrize("method", [BasicGet(), BasicConsume()])
def test_the_last_declared_queue(method: BasicGet | BasicConsume) -> None:
    """§3.8."""
    assert World().client().refusal(method) == (404, "NOT_FOUND - no previously declared queue")
    client = with_queue(b"x")
    client.send(1, method)
    assert client.bodies() == [b"x"]


@pytest.mark.parametrize("method", [BasicGet(queue="q"), BasicConsume(queue="q")])
def test_read_permission(method: Method) -> None:
    client = with_queue()
    client.world.submit(SetPermission("/", "guest", ".*", ".*", "^$"))
    text = "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'guest'"
    assert client.refusal(method) == (403, text)


@pytest.mark.parametrize("method", [BasicGet(queue="q"), BasicConsume(queue="q")])
def test_another_connections_exclusive_queue(method: Method) -> None:
    """§3.7: any op gives 405."""
    world = World()
    world.client().send(1, QueueDeclare(queue="q", exclusive=True))
    world.settle()
    code, text = world.client().refusal(method)
    assert code == 405
    assert text.startswith(
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'."
    )


# --- direct reply-to --------------------------------------------------------------------------------------


def test_one_reply_consumer_a_channel() -> None:
    """§4.12 row 1."""
    client = World().client()
    client.ask(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True, exclusive=True))
    assert client.refusal(BasicConsume(queue=REPLY_TO, no_ack=True)) == (
        406,
        "PRECONDITION_FAILED - reply consumer already set",
    )


def test_a_reply_consumer_cannot_acknowledge() -> None:
    """§4.12 row 1."""
    assert World().client().refusal(BasicConsume(queue=REPLY_TO)) == (
        406,
        "PRECONDITION_FAILED - reply consumer cannot acknowledge",
    )


def test_a_reply_consumer_needs_no_permissions() -> None:
    world = World()
    world.submit(SetPermission("/", "guest", "", "", ""))
    assert world.client().ask(
        1, BasicConsume(queue=REPLY_TO, no_ack=True, consumer_tag="t")
    ) == BasicConsumeOk("t")


def test_get_on_the_base_name() -> None:
    """§4.12 row `get / bind on base name`."""
    text = f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'"
    assert World().client().refusal(BasicGet(queue=REPLY_TO)) == (404, text)
