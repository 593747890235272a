"""The queue class: checks in order, answers, names (amqp-behaviour §3.1, §3.7–§3.14)."""

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicConsume,
    BasicGet,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from node.catalogue import limits
from node.catalogue.commands import SetParameter, SetPermission
from tests.kit.world import Client, World

REPLY_TO = "amq.rabbitmq.reply-to"
LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. "
    "It could be originally declared on another connection "
    "or the exclusive property value does not match that of the original declaration."
)


def with_queue(*bodies: bytes, **settings: object) -> Client:
    client = World().client()
    client.send(1, QueueDeclare(queue="q", **settings))  # type: ignore[arg-type]
    client.publish(1, "q", *bodies)
    client.received()
    return client


# --- declare ----------------------------------------------------------------------------------------------


def test_declare_counts_ready_messages_and_all_consumers() -> None:
    """§3.7 below the list."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicGet(queue="q"))
    client.received()
    for passive in (False, True):
        assert client.ask(1, QueueDeclare(queue="q", passive=passive)) == QueueDeclareOk("q", 2, 0)
    client.send(1, BasicConsume(queue="q"))
    client.received()
    assert client.ask(1, QueueDeclare(queue="q")) == QueueDeclareOk("q", 0, 1)


def test_a_server_named_queue() -> None:
    """§3.8: declare '' always creates a new one."""
    client = World().client()
    names = set()
    for _ in range(2):
        answer = client.ask(1, QueueDeclare())
        assert isinstance(answer, QueueDeclareOk)
        assert answer.queue.startswith("amq.gen-")
        names.add(answer.queue)
    assert client.world.queue_names == names
    assert len(names) == 2


def test_line_breaks_are_deleted() -> None:
    """§3.1."""
    client = World().client()
    assert client.ask(1, QueueDeclare(queue="a\r\nb")) == QueueDeclareOk("ab", 0, 0)


def test_nowait_answers_errors_only() -> None:
    """§2.3."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q", nowait=True))
    assert client.received() == []
    assert client.world.queue_names == {"q"}
    assert client.refusal(QueueDeclare(queue="q", durable=True, nowait=True))[0] == 406


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (
            QueueDeclare(queue="amq.mine"),
            403,
            "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (QueueDeclare(queue="nope", passive=True), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
        (QueueDeclare(queue="", passive=True), 404, "NOT_FOUND - no queue '' in vhost '/'"),
        (
            QueueDeclare(queue="q", durable=True),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            QueueDeclare(queue="q", arguments={"x-message-ttl": longstr("bad")}),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received the value 'bad' of type 'longstr' but current is none",
        ),
        (
            QueueDeclare(queue="new", arguments={"x-message-ttl": longstr("bad")}),
            406,
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'new' in vhost '/': "
            '"expected integer, got longstr"',
        ),
        (
            QueueDeclare(queue="new", arguments={"x-dead-letter-exchange": long(1)}),
            406,
            "PRECONDITION_FAILED - invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'new' in vhost '/'",
        ),
        (QueueDeclare(queue="q", exclusive=True), 405, LOCKED),
    ],
)
def test_declare_refusals(method: Method, code: int, text: str) -> None:
    """§3.7 in its order."""
    assert with_queue().refusal(method) == (code, text)


def test_the_limit_of_queues() -> None:
    """§3.7 step 7; an existing queue can still be declared (step 6)."""
    client = with_queue()
    client.world.submit(SetParameter("/", "vhost-limits", "limits", {"max-queues": 1}))
    assert isinstance(client.ask(1, QueueDeclare(queue="q")), QueueDeclareOk)
    text = "PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost '/' (1) is reached"
    assert client.refusal(QueueDeclare(queue="r")) == (406, text)


@pytest.mark.parametrize(
    ("permission", "refused"),
    [
        (("^$", ".*", ".*"), "queue 'new'"),
        ((".*", ".*", "^$"), "queue 'new'"),
        ((".*", "^$", ".*"), "exchange 'dlx'"),
    ],
)
def test_permissions_of_declare(permission: tuple[str, str, str], refused: str) -> None:
    """§3.7 steps 5 and 8."""
    client = World().client()
    client.world.submit(SetPermission("/", "guest", *permission))
    method = QueueDeclare(queue="new", arguments={"x-dead-letter-exchange": longstr("dlx")})
    text = f"ACCESS_REFUSED - access to {refused} in vhost '/' refused for user 'guest'"
    assert client.refusal(method) == (403, text)


def test_a_passive_declare_needs_no_permission() -> None:
    client = with_queue()
    client.world.submit(SetPermission("/", "guest", "", "", ""))
    method = QueueDeclare(queue="q", passive=True, durable=True, arguments={"x-max-length": longstr("bad")})
    assert client.ask(1, method) == QueueDeclareOk("q", 0, 0)


def test_an_exclusive_queue_is_never_durable() -> None:
    """§3.7 step 3."""
    client = with_queue(exclusive=True, durable=True)
    assert isinstance(client.ask(1, QueueDeclare(queue="q", exclusive=True)), QueueDeclareOk)


def test_declare_of_reply_names() -> None:
    """§4.12 row queue.declare."""
    world = World()
    client, requester = world.client(), world.client()
    for passive in (False, True):
        assert client.ask(1, QueueDeclare(queue=REPLY_TO, passive=passive)) == QueueDeclareOk(REPLY_TO, 0, 1)
    requester.send(1, BasicConsume(queue=REPLY_TO, no_ack=True))
    requester.received()
    consumer = requester.channel().reply_consumer
    assert consumer is not None
    assert client.ask(1, QueueDeclare(queue=consumer.name)) == QueueDeclareOk(consumer.name, 0, 1)
    requester.lose()
    text = f"NOT_FOUND - no queue '{consumer.name}' in vhost '/'"
    assert client.refusal(QueueDeclare(queue=consumer.name, passive=True)) == (404, text)
    assert world.queue_names == set()


# --- exclusivity ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="q", exclusive=True),
        QueueDeclare(queue="q", passive=True),
        QueueDelete(queue="q"),
        QueuePurge(queue="q"),
        QueueBind(queue="q", exchange="amq.fanout"),
    ],
)
def test_another_connections_exclusive_queue(method: Method) -> None:
    """§3.7: any op → 405."""
    client = with_queue(exclusive=True)
    assert client.world.client().refusal(method) == (405, LOCKED)


def test_unbinding_it() -> None:
    """§3.7: of a non-existing binding → ok."""
    client = with_queue(exclusive=True)
    client.ask(1, QueueBind(queue="q", exchange="amq.direct", routing_key="k"))
    other = client.world.client()
    assert other.ask(1, QueueUnbind(queue="q", exchange="amq.direct", routing_key="j")) == QueueUnbindOk()
    assert other.refusal(QueueUnbind(queue="q", exchange="amq.direct", routing_key="k")) == (405, LOCKED)


def test_publishing_to_it_is_allowed() -> None:
    """§3.7."""
    client = with_queue(exclusive=True)
    client.world.client().publish(1, "q", b"x")
    assert client.world.queue("q").backlog.count == 1


# --- delete and purge -------------------------------------------------------------------------------------


def test_delete_counts_ready_only() -> None:
    """§3.11."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicGet(queue="q"))
    client.received()
    assert client.ask(1, QueueDelete(queue="q")) == QueueDeleteOk(2)
    assert client.world.queue_names == set()
    assert client.ask(1, QueueDelete(queue="q")) == QueueDeleteOk(0)


def test_conditions_of_delete() -> None:
    """§3.11 rows: not-empty is checked before in-use."""
    both = QueueDelete(queue="q", if_unused=True, if_empty=True)
    client = with_queue(b"1")
    assert client.refusal(both) == (406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty")
    client = with_queue(b"1")
    client.send(1, BasicConsume(queue="q"))
    client.received()
    assert client.refusal(both) == (406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use")
    client = with_queue(b"1")
    client.send(1, BasicGet(queue="q"))
    client.received()
    assert client.ask(1, both) == QueueDeleteOk(0)


def test_delete_of_a_missing_queue_needs_permission_too() -> None:
    """§3.11 row 1."""
    client = World().client()
    client.world.submit(SetPermission("/", "guest", "^$", ".*", ".*"))
    assert client.refusal(QueueDelete(queue="nope"))[0] == 403


def test_consumers_are_told_later_deletions_too() -> None:
    """After one delete, cancels are no longer held back."""
    client = with_queue()
    client.ask(1, QueueDelete(queue="q"))
    assert client.channel().held_cancels is None


def test_purge_counts_ready_only() -> None:
    """§3.11."""
    client = with_queue(b"1", b"2", b"3")
    client.send(1, BasicGet(queue="q"))
    client.received()
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(2)
    assert client.world.queue("q").unacked_count == 1
    assert client.ask(1, QueuePurge(queue="q")) == QueuePurgeOk(0)


def test_purge_needs_read() -> None:
    """§3.11."""
    client = with_queue(b"1")
    client.world.submit(SetPermission("/", "guest", ".*", ".*", "^$"))
    assert client.refusal(QueuePurge(queue="q"))[0] == 403


@pytest.mark.parametrize("name", ["nope", "q\r\n"])
def test_purge_of_a_missing_queue(name: str) -> None:
    """§3.11; §3.1: line breaks are not stripped."""
    assert with_queue().refusal(QueuePurge(queue=name)) == (
        404,
        f"NOT_FOUND - no queue '{name}' in vhost '/'",
    )


# --- bindings ---------------------------------------------------------------------------------------------


def test_bind_and_unbind() -> None:
    client = with_queue()
    client.send(1, ExchangeDeclare(exchange="x"))
    client.received()
    for _ in range(2):
        assert client.ask(1, QueueBind(queue="q", exchange="x", routing_key="k")) == QueueBindOk()
    client.publish(1, "k", b"1", exchange="x")
    assert client.ask(1, QueueUnbind(queue="q", exchange="x", routing_key="k")) == QueueUnbindOk()
    client.publish(1, "k", b"2", exchange="x")
    assert client.world.queue("q").backlog.count == 1


@pytest.mark.parametrize(
    "method",
    [
        QueueUnbind(queue="q", exchange="amq.direct", routing_key="never bound"),
        QueueUnbind(queue="nope", exchange="amq.direct"),
        QueueUnbind(queue="q", exchange="nope"),
    ],
)
def test_unbind_of_what_is_missing(method: Method) -> None:
    """§3.14."""
    assert with_queue().ask(1, method) == QueueUnbindOk()


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (
            QueueBind(queue="q", exchange=""),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (QueueBind(queue="nope", exchange="nox"), 404, "NOT_FOUND - no exchange 'nox' in vhost '/'"),
        (QueueBind(queue="nope", exchange="amq.direct"), 404, "NOT_FOUND - no queue 'nope' in vhost '/'"),
    ],
)
def test_bind_refusals(method: Method, code: int, text: str) -> None:
    """§3.14."""
    assert with_queue().refusal(method) == (code, text)


@pytest.mark.parametrize(
    ("permission", "refused"),
    [((".*", "^$", ".*"), "queue 'q'"), ((".*", ".*", "^$"), "exchange 'amq.direct'")],
)
@pytest.mark.parametrize("kind", [QueueBind, QueueUnbind])
def test_permissions_of_bindings(
    kind: type[QueueBind | QueueUnbind], permission: tuple[str, str, str], refused: str
) -> None:
    """§3.14: write on the destination, then read on the source."""
    client = with_queue()
    client.world.submit(SetPermission("/", "guest", *permission))
    text = f"ACCESS_REFUSED - access to {refused} in vhost '/' refused for user 'guest'"
    assert client.refusal(kind(queue="q", exchange="amq.direct")) == (403, text)


@pytest.mark.parametrize(
    ("queue", "key", "bound"),
    [("", "", "q"), ("q", "", ""), ("", "k", "k")],
)
def test_the_shorthand_of_bind(queue: str, key: str, bound: str) -> None:
    """§3.8: with both empty the routing key becomes the queue's name."""
    client = with_queue()
    client.ask(1, QueueBind(queue=queue, exchange="amq.direct", routing_key=key))
    client.publish(1, bound, b"x", exchange="amq.direct")
    assert client.world.queue("q").backlog.count == 1
    client.ask(1, QueueUnbind(queue=queue, exchange="amq.direct", routing_key=key))
    client.publish(1, bound, b"x", exchange="amq.direct")
    assert client.world.queue("q").backlog.count == 1


@pytest.mark.parametrize(
    "method", [QueueDelete(), QueuePurge(), QueueBind(exchange="amq.direct"), QueueUnbind()]
)
def test_nothing_declared_yet(method: Method) -> None:
    """§3.8."""
    assert World().client().refusal(method) == (404, "NOT_FOUND - no previously declared queue")


@pytest.mark.parametrize("arguments", [{"x-match": long(1)}, {"x-match": longstr("some")}])
def test_arguments_for_a_headers_exchange(arguments: Table) -> None:
    """§3.17."""
    method = QueueBind(queue="q", exchange="amq.headers", arguments=arguments)
    assert with_queue().refusal(method)[0] == 406


def test_bindings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bindings to a queue and bindings of a vhost have limits; those that were unbound don't count."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, QueueDeclare(queue="r"))
    client.received()
    monkeypatch.setattr(limits, "BINDINGS_TO_MAX", 3)
    monkeypatch.setattr(limits, "VHOST_BINDINGS_MAX", 5)
    for queue, key in ("q1", "q2", "q3", "r1", "r2"):
        assert client.ask(1, QueueBind(queue=queue, exchange="amq.topic", routing_key=key)) == QueueBindOk()
    assert client.ask(1, QueueUnbind(queue="q", exchange="amq.topic", routing_key="1")) == QueueUnbindOk()
    assert client.ask(1, QueueBind(queue="r", exchange="amq.topic", routing_key="3")) == QueueBindOk()
    assert client.refusal(QueueBind(queue="q", exchange="amq.topic", routing_key="4")) == (
        406,
        "PRECONDITION_FAILED - cannot bind queue 'q' in vhost '/': binding limit in vhost '/' (5) is reached",
    )
    other = client.world.client()
    code, text = other.refusal(QueueBind(queue="r", exchange="amq.topic", routing_key="4"))
    assert (code, text) == (
        406,
        "PRECONDITION_FAILED - cannot bind queue 'r' in vhost '/': binding limit (3) is reached",
    )


def test_patterns_of_topic_exchanges_are_bounded() -> None:
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    client.received()
    pattern = ".".join("#" * 17)
    assert client.ask(1, QueueBind(queue="q", exchange="amq.direct", routing_key=pattern)) == QueueBindOk()
    code, text = client.refusal(QueueBind(queue="q", exchange="amq.topic", routing_key=pattern))
    assert code == 406
    assert text.startswith("PRECONDITION_FAILED - more than 16 wildcards '#' in routing key")
