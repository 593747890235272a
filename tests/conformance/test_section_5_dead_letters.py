"""amqp-behaviour §5.5: which messages die, where they go and by which keys."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicNack,
    BasicReject,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from node.amqp.properties import Properties
from tests.conformance.death_steps import deaths, first_death, observe, reject, strings
from tests.conformance.queue_steps import dead_letters_to, drain, let_pass, publish_each, ready_count
from tests.kit.amqp_client import Channel, Connection
from tests.kit.servers import Admin

Names = Callable[[str], str]


@pytest.fixture
def grave(channel: Channel) -> str:
    """A queue for dead letters."""
    return channel.declare(exclusive=True)


@pytest.fixture
def fanout(channel: Channel, name: Names) -> str:
    """A fanout exchange, for dead letters."""
    exchange = name("dlx")
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", auto_delete=True)
    return exchange


# Where it goes.


@pytest.mark.parametrize("by", [BasicReject(1, requeue=False), BasicNack(1, requeue=False)])
def test_rejected(channel: Channel, grave: str, by: BasicReject | BasicNack) -> None:
    """§5.5 reason rejected: reject or nack without requeue; the whole of the first x-death."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"body")
    channel.get(queue, no_ack=False)
    channel.send(by)
    death = channel.wait_get(grave)
    assert (death.method.exchange, death.method.routing_key, death.body) == ("", grave, b"body")
    (entry,) = deaths(death)
    assert list(entry.items()) == first_death(entry, "rejected", queue, "", queue)


def test_expired(channel: Channel, grave: str) -> None:
    """§5.5 reason expired: by the queue's TTL; no original-expiration, for the message had none."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=30))
    channel.publish("", queue, b"body")
    (entry,) = deaths(channel.wait_get(grave))
    assert list(entry.items()) == first_death(entry, "expired", queue, "", queue)


def test_maxlen(channel: Channel, grave: str) -> None:
    """§5.5 reason maxlen: the head that the length dropped."""
    arguments = dead_letters_to("", grave) | {"x-max-length": long(1)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"old", b"new")
    death = channel.wait_get(grave)
    assert death.body == b"old"
    (entry,) = deaths(death)
    assert list(entry.items()) == first_death(entry, "maxlen", queue, "", queue)


def test_properties_are_kept(channel: Channel, grave: str) -> None:
    """§5.5: all properties but expiration stay, and the body."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    sent: dict[str, Any] = {
        "content_type": "t",
        "content_encoding": "e",
        "delivery_mode": 2,
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": 1234567890,
        "type": "y",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "k",
    }
    publish_each(channel, queue, b"body", properties=Properties(**sent))
    reject(channel, queue)
    death = channel.wait_get(grave)
    assert {key: getattr(death.properties, key) for key in sent} == sent
    assert death.body == b"body"


def test_missing_exchange(connection: Connection, channel: Channel, name: Names) -> None:
    """§5.5: dropped silently, for the rejecting client too."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(name("missing")))
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    channel.sync()
    assert drain(channel, queue) == []


def test_exchange_that_comes_later(channel: Channel, name: Names) -> None:
    """§5.5: the exchange is looked up at the time of death."""
    exchange = name("x")
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange))
    publish_each(channel, queue, b"x")
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", auto_delete=True)
    watched = observe(channel, exchange)
    reject(channel, queue)
    assert channel.wait_get(watched).method.exchange == exchange


def test_unroutable_dead_letters_vanish(channel: Channel, name: Names) -> None:
    """§5.5: without confirms and mandatory, so unroutable copies are gone; nothing is returned."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", name("nowhere")))
    channel.publish("", queue, b"x", mandatory=True)
    reject(channel, queue)
    assert drain(channel, queue) == []
    channel.sync()


def test_internal_exchange(channel: Channel, name: Names) -> None:
    """§5.5: a dead-letter exchange may be internal."""
    exchange = name("internal")
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", internal=True, auto_delete=True)
    grave = observe(channel, exchange)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange))
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    death = channel.wait_get(grave)
    assert (death.method.exchange, death.method.routing_key) == (exchange, queue)


def test_topic_exchange(channel: Channel, name: Names) -> None:
    """§5.5: a topic exchange routes by the original key."""
    exchange = name("topic")
    channel.call(ExchangeDeclare, exchange=exchange, type="topic", auto_delete=True)
    queue = channel.declare(name("work.q"), exclusive=True, arguments=dead_letters_to(exchange))
    grave = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=grave, exchange=exchange, routing_key="work.#")
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    assert channel.wait_get(grave).method.routing_key == queue


def test_no_permissions_are_asked_at_death(
    connect: Callable[..., Connection],
    channel: Channel,
    fanout: str,
    make_user: Callable[..., str],
    name: Names,
) -> None:
    """§5.5: neither publisher nor consumer needs to write the exchange."""
    grave, queue = observe(channel, fanout), name("q")
    channel.declare(queue, arguments=dead_letters_to(fanout))
    user = make_user("/", "^$", r"^amq\.default$", f"^{queue}$")
    other = connect(user, user).channel()
    other.publish("", queue, b"x")
    reject(other, queue)
    assert channel.wait_get(grave).body == b"x"
    channel.call(QueueDelete, queue=queue)


def test_exchange_of_the_publish(channel: Channel, fanout: str, name: Names) -> None:
    """§5.5: x-death has the exchange of the publish, the delivery the dead-letter exchange."""
    grave, exchange = observe(channel, fanout), name("x")
    channel.call(ExchangeDeclare, exchange=exchange, type="topic", auto_delete=True)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(fanout))
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="#")
    channel.publish(exchange, "a.b", b"x")
    reject(channel, queue)
    death = channel.wait_get(grave)
    assert (death.method.exchange, death.method.routing_key) == (fanout, "a.b")
    (entry,) = deaths(death)
    assert list(entry.items()) == first_death(entry, "rejected", queue, exchange, "a.b")
    assert death.headers["x-first-death-exchange"] == longstr(exchange)


# Routing keys.


@pytest.fixture
def direct(channel: Channel, name: Names) -> tuple[str, dict[str, str]]:
    """A direct exchange, and queues bound to it by their key."""
    exchange, queues = name("direct"), {}
    channel.call(ExchangeDeclare, exchange=exchange, auto_delete=True)
    for key in ("cc", "bcc", "new"):
        queues[key] = channel.declare(exclusive=True)
        channel.call(QueueBind, queue=queues[key], exchange=exchange, routing_key=key)
    return exchange, queues


CC_AND_BCC = Properties(headers={"CC": strings("cc"), "BCC": strings("bcc"), "n": long(1)})


def test_sender_selected_keys_route_the_dead_letter(
    channel: Channel, direct: tuple[str, dict[str, str]]
) -> None:
    """§5.5: with no key of its own it goes by the original key, CC and the hidden BCC."""
    exchange, queues = direct
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange))
    queues["original"] = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queues["original"], exchange=exchange, routing_key=queue)
    publish_each(channel, queue, b"x", properties=CC_AND_BCC)
    reject(channel, queue)
    for key in ("original", "cc", "bcc"):
        death = channel.wait_get(queues[key])
        assert death.method.routing_key == queue
        assert death.headers["CC"] == strings("cc")
        assert "BCC" not in death.headers
        (entry,) = deaths(death)
        assert list(entry.items()) == first_death(entry, "rejected", queue, "", queue, "cc")
    assert drain(channel, queues["new"]) == []


def test_a_key_of_its_own_replaces_them(channel: Channel, direct: tuple[str, dict[str, str]]) -> None:
    """§5.5: x-dead-letter-routing-key alone routes; CC is removed, but x-death has it."""
    exchange, queues = direct
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange, "new"))
    publish_each(channel, queue, b"x", properties=CC_AND_BCC)
    reject(channel, queue)
    death = channel.wait_get(queues["new"])
    assert death.method.routing_key == "new"
    assert not {"CC", "BCC"} & set(death.headers)
    assert deaths(death)[0]["routing-keys"] == strings(queue, "cc")
    assert [drain(channel, queues[key]) for key in ("cc", "bcc")] == [[], []]


def test_an_empty_key_is_a_key(channel: Channel, name: Names) -> None:
    """§5.5: set means set, also to the empty string."""
    exchange = name("direct")
    channel.call(ExchangeDeclare, exchange=exchange, auto_delete=True)
    grave = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=grave, exchange=exchange, routing_key="")
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange, ""))
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    assert channel.wait_get(grave).method.routing_key == ""


# Order, time and other causes.


def test_multiple_nack_keeps_the_order(channel: Channel, grave: str) -> None:
    """§5.5: dead-lettered in original order."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, *(b"%d" % number for number in range(1, 8)))
    for _ in range(6):
        channel.get(queue, no_ack=False)
    channel.send(BasicNack, delivery_tag=4, requeue=False)
    channel.send(BasicNack, delivery_tag=6, multiple=True, requeue=False)
    assert [channel.wait_get(grave).body for _ in range(6)] == [b"4", b"1", b"2", b"3", b"5", b"6"]
    assert drain(channel, queue) == [b"7"]


@pytest.fixture
def set_policy(admin: Admin, name: Names) -> Iterator[Callable[[str, Mapping[str, object]], None]]:
    """Set the one policy of the test, for the queue of this name."""
    policy = name("policy")
    made: list[str] = []

    def apply(queue: str, definition: Mapping[str, object]) -> None:
        admin.set_policy("/", policy, f"^{queue}$", definition, 0, "queues")
        made.append(policy)

    yield apply
    if made:
        admin.clear_policy("/", policy)


def test_policy_at_the_time_of_death(
    channel: Channel, grave: str, name: Names, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.5: exchange and key are read when the message dies: a policy set later affects what is queued."""
    queue, other = channel.declare(name("q"), exclusive=True), channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    set_policy(queue, {"dead-letter-exchange": "", "dead-letter-routing-key": grave})
    channel.call(QueueDeclare, queue=queue, passive=True)
    reject(channel, queue)
    assert channel.wait_get(grave).body == b"1"
    set_policy(queue, {"dead-letter-exchange": "", "dead-letter-routing-key": other})
    channel.call(QueueDeclare, queue=queue, passive=True)
    reject(channel, queue)
    assert channel.wait_get(other).body == b"2"


def test_argument_before_policy(
    channel: Channel, grave: str, name: Names, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.5, §6: the queue's argument wins over a policy."""
    queue = channel.declare(name("q"), exclusive=True, arguments=dead_letters_to("", grave))
    other = channel.declare(exclusive=True)
    set_policy(queue, {"dead-letter-exchange": "", "dead-letter-routing-key": other})
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    assert channel.wait_get(grave).body == b"x"


@pytest.mark.parametrize("method", [QueuePurge, QueueDelete])
def test_purge_and_delete_do_not_dead_letter(
    channel: Channel, grave: str, method: type[QueuePurge | QueueDelete]
) -> None:
    """§5.5: the reasons are rejected, expired and maxlen: what is purged or deleted is no dead letter."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"x")
    assert channel.call(method, queue=queue).message_count == 1
    let_pass(channel, 20)
    assert drain(channel, grave) == []


def test_the_dying_message_is_gone_from_its_queue(channel: Channel, grave: str) -> None:
    """§5.5: the original is settled after it was handed over; it isn't in both."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=30))
    publish_each(channel, queue, b"x")
    channel.wait_get(grave)
    assert ready_count(channel, queue) == 0
    assert drain(channel, queue) == []


def test_at_least_once_is_not_for_classic_queues(channel: Channel, name: Names) -> None:
    """§5.5: dead-letter-strategy is quorum-only."""
    queue = name("q")
    arguments = dead_letters_to("") | {"x-dead-letter-strategy": longstr("at-least-once")}
    channel.send(QueueDeclare, queue=queue, arguments=arguments)
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-dead-letter-strategy' for queue '{queue}' in vhost '/'"
        " of queue type rabbit_classic_queue"
    )
    channel.expect_close(406, text, QueueDeclare)
