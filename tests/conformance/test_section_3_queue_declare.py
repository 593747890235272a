"""amqp-behaviour §3.1 and §3.7: names of queues and queue.declare. Arguments: a file apart."""

import re
import time
from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, boolean, longstr
from node.amqp.methods import (
    BasicConsume,
    BasicGet,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from tests.conformance.entities import (
    access_refused,
    is_routed,
    limited_channel,
    locked,
    no_queue,
    queue_exists,
    refused,
    take_unacked,
)
from tests.conformance.queue_steps import drain, publish_each
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until
from tests.kit.servers import Admin

Name = Callable[[str], str]
Connect = Callable[..., Connection]

ODD_NAMES = ["two words", "a/b", "tab\t", "nul\0", "'quoted'", "žluťoučký kůň", "\N{RABBIT FACE}", " "]
GENERATED = r"-[A-Za-z0-9_-]{22}"
"""16 random bytes in URL-safe base64, without its padding."""


@pytest.fixture
def limited(make_user: Callable[..., str], connect: Connect) -> Channel:
    return limited_channel(make_user, connect)


@pytest.fixture
def other(connect: Connect) -> Channel:
    """A channel of another connection than `channel`."""
    return connect().channel()


def inequivalent(queue: str, key: str, received: bool) -> str:
    return (
        f"inequivalent arg '{key}' for queue '{queue}' in vhost '/': "
        f"received '{str(received).lower()}' but current is '{str(not received).lower()}'"
    )


# §3.1 Names


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_name_may_hold_any_characters(channel: Channel, name: Name, odd: str) -> None:
    """§3.1: no charset check beyond UTF-8."""
    queue = name(odd) + odd
    assert channel.declare(queue, exclusive=True) == queue
    publish_each(channel, queue, b"0")
    assert drain(channel, queue) == [b"0"]


@pytest.mark.parametrize("filler", ["x", "é"])
def test_name_may_have_255_bytes(channel: Channel, name: Name, filler: str) -> None:
    """§3.1: shortstr ≤ 255 bytes."""
    start = name("q")
    queue = start + "x" * ((255 - len(start)) % 2) + filler * ((255 - len(start)) // 2)
    if filler == "x":
        queue = queue.ljust(255, "x")
    assert len(queue.encode()) == 255
    assert channel.declare(queue, exclusive=True) == queue


def test_cr_and_lf_are_deleted_on_declare(channel: Channel, name: Name) -> None:
    """§3.1: CR and LF are deleted from names in queue.declare, and declare-ok reports what is left."""
    queue = name("q")
    assert channel.declare(f"\r{queue[:2]}\r\n{queue[2:]}\n", exclusive=True) == queue
    assert channel.declare(f"{queue}\r\n", passive=True) == queue


def test_cr_and_lf_are_deleted_on_delete(channel: Channel, name: Name) -> None:
    """§3.1: … and in queue.delete."""
    queue = channel.declare(name("q"), exclusive=True)
    channel.call(QueueDelete, queue=f"{queue[:2]}\r\n{queue[2:]}")
    assert not queue_exists(channel, queue)


def test_cr_and_lf_are_deleted_on_bind(channel: Channel, name: Name) -> None:
    """§3.1: … and in all names of queue.bind and unbind."""
    exchange, queue = name("x"), channel.declare(name("q"), exclusive=True)
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout")
    raw = {"exchange": f"\n{exchange}\r", "queue": f"{queue}\r\n"}
    channel.call(QueueBind, **raw)
    assert is_routed(channel, exchange)
    channel.call(QueueUnbind, **raw)
    assert not is_routed(channel, exchange)


def test_routing_keys_keep_cr_and_lf(channel: Channel, name: Name) -> None:
    """§3.1: only names are stripped, a routing key is no name."""
    queue = channel.declare(name("q"), exclusive=True)
    key = name("key") + "\r\n"
    channel.call(QueueBind, exchange="amq.direct", queue=queue, routing_key=key)
    assert is_routed(channel, "amq.direct", key)
    assert not is_routed(channel, "amq.direct", key.strip())


@pytest.mark.parametrize("method", [BasicGet, BasicConsume, QueuePurge])
def test_cr_and_lf_are_kept_otherwise(channel: Channel, name: Name, method: type[Method]) -> None:
    """§3.1: not stripped in get, consume and purge, which fail with the raw name."""
    raw = channel.declare(name("q"), exclusive=True) + "\r\n"
    refused(channel, 404, no_queue(raw), method, queue=raw)


def test_cr_and_lf_are_kept_on_publish(channel: Channel, name: Name) -> None:
    """§3.1: not stripped in the routing key of a publish."""
    queue = channel.declare(name("q"), exclusive=True)
    assert is_routed(channel, "", queue)
    assert not is_routed(channel, "", f"{queue}\r\n")


@pytest.mark.parametrize("queue", ["amq.foo", "amq.", "amq.gen-x", "amq.rabbitmq.trace"])
def test_reserved_prefix(channel: Channel, queue: str) -> None:
    """§3.1: a new name may not start with `amq.`."""
    text = f"queue name '{queue}' contains reserved prefix 'amq.*'"
    refused(channel, 403, text, QueueDeclare, queue=queue)


def test_reserved_prefix_before_existence(channel: Channel) -> None:
    """§3.1: the owner's re-declare of its server-named queue is refused, its passive declare is fine."""
    queue = channel.declare(exclusive=True)
    text = f"queue name '{queue}' contains reserved prefix 'amq.*'"
    refused(channel, 403, text, QueueDeclare, queue=queue, exclusive=True)
    assert channel.declare(queue, passive=True) == queue


def test_server_generated_names(channel: Channel) -> None:
    """§3.1: `amq.gen-` and `amq.ctag-`, each time another."""
    queues = {channel.declare(exclusive=True) for _ in range(3)}
    tags = {channel.consume(queue) for queue in queues}
    assert len(queues) == len(tags) == 3
    assert all(re.fullmatch("amq.gen" + GENERATED, queue) for queue in queues)
    assert all(re.fullmatch("amq.ctag" + GENERATED, tag) for tag in tags)


# §3.7 queue.declare: order of checks


def test_reply_to_pseudo_queue(channel: Channel) -> None:
    """§3.7 step 1: `amq.rabbitmq.reply-to` is not refused for its prefix; the rest is §4.12."""
    answer = channel.call(QueueDeclare, queue="amq.rabbitmq.reply-to")
    assert answer == QueueDeclareOk("amq.rabbitmq.reply-to", 0, 1)


@pytest.mark.parametrize("durable", [True, False])
def test_exclusive_forces_non_durable(channel: Channel, name: Name, durable: bool) -> None:
    """§3.7 step 3: exclusive durable and exclusive non-durable are equivalent."""
    queue = channel.declare(name("q"), exclusive=True, durable=durable)
    channel.declare(queue, exclusive=True, durable=not durable)


def test_reserved_prefix_before_permission(limited: Channel) -> None:
    """§3.7 step 4 before 5."""
    text = "queue name 'amq.foo' contains reserved prefix 'amq.*'"
    refused(limited, 403, text, QueueDeclare, queue="amq.foo")


def test_declare_needs_configure(channel: Channel, limited: Channel, name: Name) -> None:
    """§3.7 step 5, §6.7: also for an existing queue, before its attributes (step 6)."""
    for queue in (name("wr"), channel.declare(name("wr"), exclusive=True)):
        text = access_refused(limited, f"queue '{queue}'")
        refused(limited, 403, text, QueueDeclare, queue=queue, durable=True)


def test_declare_of_server_named_queue_needs_configure(limited: Channel) -> None:
    """§6.7 row queue.declare: the server's name is checked."""
    text = re.escape(access_refused(limited, "queue 'GENERATED'")).replace("GENERATED", "amq.gen" + GENERATED)
    limited.send(QueueDeclare, queue="")
    limited.expect_close(403, re.compile("ACCESS_REFUSED - " + text), QueueDeclare)


def test_order_of_checks_on_existing_queue(channel: Channel, other: Channel, name: Name) -> None:
    """§3.7 step 6: exclusivity, durable, auto_delete, then arguments; the first that differs is named."""
    queue = channel.declare(name("q"))
    differing: dict[str, object] = {"queue": queue, "arguments": {"x-max-length": Field("I", 5)}}
    arguments_text = (
        f"inequivalent arg 'x-max-length' for queue '{queue}' in vhost '/': "
        "received the value '5' of type 'signedint' but current is none"
    )
    refused(channel, 406, arguments_text, QueueDeclare, **differing)
    differing["auto_delete"] = True
    refused(channel, 406, inequivalent(queue, "auto_delete", True), QueueDeclare, **differing)
    differing["durable"] = True
    refused(channel, 406, inequivalent(queue, "durable", True), QueueDeclare, **differing)
    differing["exclusive"] = True
    for each in (channel, other):
        refused(each, 405, locked(queue), QueueDeclare, **differing)


@pytest.mark.parametrize("key", ["durable", "auto_delete"])
@pytest.mark.parametrize("received", [True, False])
def test_inequivalent_attribute(channel: Channel, name: Name, key: str, received: bool) -> None:
    """§3.9 last bullet: durable and auto_delete, either way round."""
    queue = channel.declare(name("q"), **{key: not received})
    refused(channel, 406, inequivalent(queue, key, received), QueueDeclare, queue=queue, **{key: received})


def test_declare_is_idempotent(channel: Channel, other: Channel, name: Name) -> None:
    """§3.7 step 6: the reply counts. A ticket is ignored."""
    queue, arguments = name("q"), {"x-max-length": Field("I", 5)}
    assert channel.declare(queue, durable=True, arguments=arguments) == queue
    publish_each(channel, queue, b"0", b"1")
    again = other.call(QueueDeclare, ticket=4711, queue=queue, durable=True, arguments=arguments)
    assert again == QueueDeclareOk(queue, 2, 0)


def test_existing_queue_is_not_validated(channel: Channel, name: Name) -> None:
    """§3.7 step 6: an invalid new argument is reported as inequivalent."""
    queue = channel.declare(name("q"))
    text = (
        f"inequivalent arg 'x-max-length' for queue '{queue}' in vhost '/': "
        "received the value 'x' of type 'longstr' but current is none"
    )
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={"x-max-length": longstr("x")})


def test_queue_limit_of_vhost(
    connect: Connect, admin: Admin, make_vhost: Callable[[], str], name: Name
) -> None:
    """§3.7 steps 6 and 7, §6.5 max-queues: for new queues only, of all sorts."""
    vhost = make_vhost()
    channel = connect(vhost=vhost).channel()
    queue = channel.declare(name("q"))
    admin.set_vhost_limits(vhost, {"max-queues": 1})
    channel.declare(queue)
    new = name("q")
    text = f"cannot declare queue '{new}': queue limit in vhost '{vhost}' (1) is reached"
    invalid, quorum = {"x-dead-letter-exchange": Field("I", 5)}, {"x-queue-type": longstr("quorum")}
    refused(channel, 406, text, QueueDeclare, queue=new)
    refused(channel, 406, text, QueueDeclare, queue=new, exclusive=True)
    refused(channel, 406, text, QueueDeclare, queue=new, durable=True, arguments=quorum)
    refused(channel, 406, text, QueueDeclare, queue=new, arguments=invalid)
    channel.send(QueueDeclare, queue="", exclusive=True)
    pattern = re.escape(text).replace(re.escape(new), "amq.gen" + GENERATED)
    channel.expect_close(406, re.compile("PRECONDITION_FAILED - " + pattern), QueueDeclare)


def test_dead_letter_exchange_must_be_longstr(limited: Channel, name: Name) -> None:
    """§3.7 step 8: before the permissions on the DLX and the validation of other arguments."""
    queue = name("c")
    text = f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '{queue}' in vhost '/'"
    arguments = {"x-max-length": longstr("x"), "x-dead-letter-exchange": Field("I", 5)}
    refused(limited, 406, text, QueueDeclare, queue=queue, arguments=arguments)


def test_dead_letter_exchange_needs_read_on_queue(limited: Channel, name: Name) -> None:
    """§3.7 step 8, §6.7: asked before write on the DLX and before step 9."""
    queue = name("c")
    arguments = {"x-max-length": longstr("x"), "x-dead-letter-exchange": longstr(name("none"))}
    text = access_refused(limited, f"queue '{queue}'")
    refused(limited, 403, text, QueueDeclare, queue=queue, arguments=arguments)


def test_dead_letter_exchange_needs_write_on_exchange(limited: Channel, name: Name) -> None:
    """§3.7 step 8, §6.7."""
    exchange = name("cr")
    arguments = {"x-max-length": longstr("x"), "x-dead-letter-exchange": longstr(exchange)}
    text = access_refused(limited, f"exchange '{exchange}'")
    refused(limited, 403, text, QueueDeclare, queue=name("cr"), arguments=arguments)
    allowed = {"x-dead-letter-exchange": longstr(name("w"))}
    limited.declare(name("cr"), exclusive=True, arguments=allowed)


def test_dead_letter_exchange_of_existing_queue_needs_no_permission(
    channel: Channel, limited: Channel, name: Name
) -> None:
    """§6.7 row queue.declare: DLX "if given & new"."""
    arguments = {"x-dead-letter-exchange": longstr(name("none"))}
    limited.declare(channel.declare(name("c"), arguments=arguments), arguments=arguments)


# §3.7: counts, exclusivity, passive


def test_counts_of_a_new_queue(channel: Channel, name: Name) -> None:
    """§3.7: 0, 0."""
    queue = name("q")
    assert channel.call(QueueDeclare, queue=queue, exclusive=True) == QueueDeclareOk(queue, 0, 0)


def test_message_count_is_of_ready_messages(channel: Channel, name: Name) -> None:
    """§3.7: unacked messages are not counted."""
    queue = channel.declare(name("q"), exclusive=True)
    publish_each(channel, queue, b"0", b"1", b"2")
    take_unacked(channel, queue)
    assert channel.call(QueueDeclare, queue=queue, passive=True).message_count == 2
    assert channel.call(QueueDeclare, queue=queue, exclusive=True).message_count == 2


def test_consumer_count_is_of_all_consumers(channel: Channel, name: Name) -> None:
    """§3.7: also of those that a single active consumer keeps waiting."""
    arguments = {"x-single-active-consumer": boolean(True)}
    queue = channel.declare(name("q"), exclusive=True, arguments=arguments)
    for _ in range(3):
        channel.consume(queue)
    assert channel.call(QueueDeclare, queue=queue, passive=True) == QueueDeclareOk(queue, 0, 3)


def test_exclusive_queue_of_another_connection(channel: Channel, other: Channel, name: Name) -> None:
    """§3.7: strict on declare, whatever the exclusive flag."""
    queue = channel.declare(name("q"), exclusive=True)
    for exclusive in (True, False):
        refused(other, 405, locked(queue), QueueDeclare, queue=queue, exclusive=exclusive)


def test_exclusive_flag_must_be_the_same(channel: Channel, name: Name) -> None:
    """§3.7: also for the owner, and when a non-exclusive queue is redeclared exclusive."""
    exclusive, shared = channel.declare(name("q"), exclusive=True), channel.declare(name("q"))
    refused(channel, 405, locked(exclusive), QueueDeclare, queue=exclusive)
    refused(channel, 405, locked(shared), QueueDeclare, queue=shared, exclusive=True)


def test_exclusive_queue_on_another_channel(channel: Channel, name: Name) -> None:
    """§3.13: the owner is the connection."""
    queue = channel.declare(name("q"), exclusive=True)
    second = channel.connection.channel(2)
    assert second.declare(queue, exclusive=True) == queue
    second.consume(queue)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (QueueDeclare, {"passive": True}),
        (BasicGet, {}),
        (BasicConsume, {}),
        (QueuePurge, {}),
        (QueueDelete, {}),
        (QueueBind, {"exchange": "amq.direct"}),
    ],
)
def test_use_of_another_connections_exclusive_queue(
    channel: Channel, other: Channel, name: Name, method: type[Method], fields: dict[str, object]
) -> None:
    """§3.7: any operation on it is 405."""
    queue = channel.declare(name("q"), exclusive=True)
    refused(other, 405, locked(queue), method, queue=queue, **fields)


def test_unbind_of_another_connections_exclusive_queue(channel: Channel, other: Channel, name: Name) -> None:
    """§3.7: 405 too, but unbind of a non-existing binding is ok."""
    queue = channel.declare(name("q"), exclusive=True)
    channel.call(QueueBind, queue=queue, exchange="amq.direct", routing_key=queue)
    other.call(QueueUnbind, queue=queue, exchange="amq.direct", routing_key="never bound")
    fields = {"queue": queue, "exchange": "amq.direct", "routing_key": queue}
    refused(other, 405, locked(queue), QueueUnbind, **fields)
    assert is_routed(channel, "amq.direct", queue)


def test_publish_to_another_connections_exclusive_queue(channel: Channel, other: Channel, name: Name) -> None:
    """§3.7: publishing to it is allowed."""
    queue = channel.declare(name("q"), exclusive=True)
    assert is_routed(other, "", queue)
    assert channel.wait_get(queue).body == b"probe"


def test_passive_declare_looks_at_existence_only(channel: Channel, limited: Channel, name: Name) -> None:
    """§3.7 Passive: no permission check; arguments and flags ignored."""
    queue = channel.declare(name("none"), durable=True)
    publish_each(channel, queue, b"0")
    answer = limited.call(
        QueueDeclare, queue=queue, passive=True, auto_delete=True, arguments={"x-max-length": longstr("x")}
    )
    assert answer == QueueDeclareOk(queue, 1, 0)
    assert limited.declare(queue, passive=True, exclusive=True) == queue


@pytest.mark.parametrize("nowait", [False, True])
def test_passive_declare_of_missing_queue(limited: Channel, name: Name, nowait: bool) -> None:
    """§3.7 Passive: 404; nowait does not suppress the error (§2.3)."""
    queue = name("none")
    refused(limited, 404, no_queue(queue), QueueDeclare, queue=queue, passive=True, nowait=nowait)


def test_passive_declare_of_empty_name(channel: Channel, name: Name) -> None:
    """§3.7 Passive: the empty name means literally '', not the last queue."""
    channel.declare(name("q"), exclusive=True)
    refused(channel, 404, no_queue(""), QueueDeclare, queue="", passive=True)


@pytest.mark.slow
@pytest.mark.parametrize("passive", [True, False])
def test_declare_counts_as_use(channel: Channel, other: Channel, name: Name, passive: bool) -> None:
    """§3.7: declaring postpones x-expires; asking by a publish does not."""
    fields: dict[str, object] = {"queue": name("q"), "arguments": {"x-expires": Field("I", 400)}}
    channel.call(QueueDeclare, **fields)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        channel.call(QueueDeclare, passive=passive, **fields)
        time.sleep(0.1)
    wait_until(lambda: not is_routed(other, "", str(fields["queue"])), "the queue expires")


def test_declare_delete_and_purge_with_nowait(channel: Channel, name: Name) -> None:
    """§2.3 of the queue methods: nowait suppresses the success reply."""
    queue = name("q")
    channel.send(QueueDeclare, queue=queue, exclusive=True, nowait=True)
    channel.send(QueueBind, queue=queue, exchange="amq.direct", routing_key=queue, nowait=True)
    channel.sync()
    assert is_routed(channel, "amq.direct", queue)
    channel.send(QueuePurge, queue=queue, nowait=True)
    channel.sync()
    assert channel.get(queue) is None
    channel.send(QueueDelete, queue=queue, nowait=True)
    channel.sync()
    assert not queue_exists(channel, queue)
