"""amqp-behaviour §5.5: where dead messages go, and what x-death says of them, field by field."""

import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table, timestamp
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
from tests.conformance.amqp_client import Channel, Connection, Content
from tests.conformance.queue_steps import (
    dead_letters_to,
    drain,
    let_pass,
    publish_each,
    ready_count,
    wait_until,
)
from tests.conformance.servers import Admin

Names = Callable[[str], str]

CLOCK_TOLERANCE_S = 5


def strings(*values: str) -> Field:
    return array([longstr(value) for value in values])


def reject(channel: Channel, queue: str) -> None:
    """Take the next message, reject it without requeue."""
    tag = channel.wait_get(queue, no_ack=False).method.delivery_tag
    channel.send(BasicReject, delivery_tag=tag, requeue=False)


def deaths(content: Content) -> list[Table]:
    """The entries of x-death, the newest first."""
    field = content.headers["x-death"]
    assert field.tag == "A"
    assert isinstance(field.value, list)
    entries = []
    for entry in field.value:
        assert entry.tag == "F"
        assert isinstance(entry.value, dict)
        entries.append(entry.value)
    return entries


def check_time(entry: Table) -> Field:
    """The time of the entry is now, in seconds; give it back for the comparison of the whole."""
    field = entry["time"]
    assert field.tag == "T"
    assert isinstance(field.value, int)
    assert abs(field.value - time.time()) <= CLOCK_TOLERANCE_S
    return field


def first_death(entry: Table, reason: str, queue: str, exchange: str, *keys: str) -> list[tuple[str, Field]]:
    """An x-death entry as it is written first: the fields, their order, their types."""
    return [
        ("count", long(1)),
        ("reason", longstr(reason)),
        ("queue", longstr(queue)),
        ("time", check_time(entry)),
        ("exchange", longstr(exchange)),
        ("routing-keys", strings(*keys)),
    ]


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


def observe(channel: Channel, exchange: str) -> str:
    """A queue that gets all of a fanout exchange."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=exchange)
    return queue


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


def test_original_expiration(channel: Channel, grave: str) -> None:
    """§5.5, §5.2: the expiration property is removed and kept as original-expiration, at the end of the entry."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    channel.publish("", queue, b"body", Properties(expiration="030"))
    death = channel.wait_get(grave)
    assert death.properties.expiration is None
    (entry,) = deaths(death)
    expected = first_death(entry, "expired", queue, "", queue)
    assert list(entry.items()) == [*expected, ("original-expiration", longstr("030"))]


def test_original_expiration_of_a_rejected_message(channel: Channel, grave: str) -> None:
    """§5.5: removed and kept whatever the message died of."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    channel.publish("", queue, b"body", Properties(expiration="60000"))
    reject(channel, queue)
    death = channel.wait_get(grave)
    assert death.properties.expiration is None
    assert deaths(death)[0]["original-expiration"] == longstr("60000")


def test_maxlen(channel: Channel, grave: str) -> None:
    """§5.5 reason maxlen: the head that the length dropped."""
    arguments = dead_letters_to("", grave) | {"x-max-length": long(1)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"old", b"new")
    death = channel.wait_get(grave)
    assert death.body == b"old"
    (entry,) = deaths(death)
    assert list(entry.items()) == first_death(entry, "maxlen", queue, "", queue)


def test_header_names(channel: Channel, grave: str) -> None:
    """§5.5: the headers of a first death, in their order after the client's own."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    channel.publish("amq.direct", "x", b"")
    publish_each(channel, queue, b"x", properties=Properties(headers={"z": long(1), "a": longstr("b")}))
    reject(channel, queue)
    headers = channel.wait_get(grave).headers
    x_death = headers["x-death"]
    assert list(headers.items()) == [
        ("z", long(1)),
        ("a", longstr("b")),
        ("x-death", x_death),
        ("x-first-death-exchange", longstr("")),
        ("x-first-death-queue", longstr(queue)),
        ("x-first-death-reason", longstr("rejected")),
    ]


def test_headers_of_a_message_without_headers(channel: Channel, grave: str) -> None:
    """§5.5: the same for a message that had no table."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    assert list(channel.wait_get(grave).headers) == [
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
    ]


def test_wire_types(channel: Channel, grave: str) -> None:
    """§5 traps: on the wire count is `l`, 64 bits, time `T`; a client's `L` becomes `l` when headers are rewritten (§0.4)."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    entries = b"\x01nL" + (5).to_bytes(8, "big")
    raw = b"\x20\x00" + len(entries).to_bytes(4, "big") + entries
    publish_each(channel, queue, b"x", properties=raw)
    reject(channel, queue)
    header = channel.wait_get(grave).header
    assert b"\x05countl" + (1).to_bytes(8, "big") + b"\x06reasonS" + (8).to_bytes(4, "big") in header
    assert b"\x04timeT" in header
    assert b"\x01nl" + (5).to_bytes(8, "big") in header


def test_properties_are_kept(channel: Channel, grave: str) -> None:
    """§5.5: all properties but expiration stay, and the body."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    sent = {
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
    connect: Callable[..., Connection], channel: Channel, fanout: str, make_user: Callable[..., str], name: Names
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
    """§5.5: x-death names the exchange and key of the publish, delivery the dead-letter exchange and that key."""
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


def test_sender_selected_keys_route_the_dead_letter(channel: Channel, direct: tuple[str, dict[str, str]]) -> None:
    """§5.5: without a key of its own it goes by the original key, CC and the hidden BCC; BCC is in no header."""
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
    """§5.5: x-dead-letter-routing-key alone routes; the CC header is removed, x-death tells of CC all the same."""
    exchange, queues = direct
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange, "new"))
    publish_each(channel, queue, b"x", properties=CC_AND_BCC)
    reject(channel, queue)
    death = channel.wait_get(queues["new"])
    assert death.method.routing_key == "new"
    assert list(death.headers)[0] == "n"
    assert not {"CC", "BCC"} & set(death.headers)
    assert deaths(death)[0]["routing-keys"] == strings(queue, "cc")
    assert [drain(channel, queues[key]) for key in ("cc", "bcc")] == [[], []]


def test_an_empty_key_is_a_key(channel: Channel, name: Names) -> None:
    """§5.5: set means set, also to the empty string."""
    exchange = name("direct")
    channel.call(ExchangeDeclare, exchange=exchange, auto_delete=True)
    grave = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=grave, exchange=exchange, routing_key="")
    # With an empty key and the last declared queue's full name the binding key stays empty (§3.8).
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(exchange, ""))
    publish_each(channel, queue, b"x")
    reject(channel, queue)
    assert channel.wait_get(grave).method.routing_key == ""


# Dying again.


def sorted_death(
    entry: Table, count: int, reason: str, queue: str, exchange: str, *keys: str
) -> list[tuple[str, Field]]:
    """An x-death entry as it is after a repetition: sorted by name."""
    return [
        ("count", long(count)),
        ("exchange", longstr(exchange)),
        ("queue", longstr(queue)),
        ("reason", longstr(reason)),
        ("routing-keys", strings(*keys)),
        ("time", check_time(entry)),
    ]


def test_same_death_again(channel: Channel, name: Names) -> None:
    """§5.5: the same queue and reason: count + 1, fields sorted; exchange, keys and time stay the first ones."""
    queue, exchange = name("work"), name("x")
    channel.declare(queue, exclusive=True, arguments=dead_letters_to("", queue))
    channel.call(ExchangeDeclare, exchange=exchange, type="fanout", auto_delete=True)
    channel.call(QueueBind, queue=queue, exchange=exchange)
    channel.publish(exchange, "first key", b"x")
    reject(channel, queue)
    first = channel.wait_get(queue, no_ack=False)
    (entry,) = deaths(first)
    assert list(entry.items()) == first_death(entry, "rejected", queue, exchange, "first key")
    for count in (2, 3):
        channel.send(BasicReject, delivery_tag=count, requeue=False)
        again = channel.wait_get(queue, no_ack=False)
        assert (again.method.exchange, again.method.routing_key) == ("", queue)
        (entry,) = deaths(again)
        assert list(entry.items()) == sorted_death(entry, count, "rejected", queue, exchange, "first key")
        assert entry["time"] == deaths(first)[0]["time"]


def test_another_death_comes_to_the_front(channel: Channel, name: Names) -> None:
    """§5.5: work → rejected → retry → expired → work: two entries, the newest in front, counts grow, first-death stays."""
    work, retry = name("work"), name("retry")
    channel.declare(work, exclusive=True, arguments=dead_letters_to("", retry))
    channel.declare(retry, exclusive=True, arguments=dead_letters_to("", work, ttl_ms=30))
    channel.publish("", work, b"x")
    for count in (1, 2, 3):
        reject(channel, work)
        wait_until(lambda: ready_count(channel, work) == 1, "it came back")
        back = channel.get(work, no_ack=False)
        assert back is not None
        expired, rejected = deaths(back)
        if count == 1:
            assert list(expired.items()) == first_death(expired, "expired", retry, "", retry)
            assert list(rejected.items()) == first_death(rejected, "rejected", work, "", work)
        else:
            assert list(expired.items()) == sorted_death(expired, count, "expired", retry, "", retry)
            assert list(rejected.items()) == sorted_death(rejected, count, "rejected", work, "", work)
        assert back.headers["x-first-death-queue"] == longstr(work)
        assert back.headers["x-first-death-reason"] == longstr("rejected")
        assert back.headers["x-first-death-exchange"] == longstr("")
        channel.send(BasicReject, delivery_tag=back.method.delivery_tag, requeue=True)


def test_original_expiration_sorts_in(channel: Channel, name: Names) -> None:
    """§5.5: original-expiration takes its place among the sorted fields; the headers keep their order."""
    queue = name("work")
    channel.declare(queue, exclusive=True, arguments=dead_letters_to("", queue))
    channel.publish("", queue, b"x", Properties(expiration="60000", headers={"z": long(1)}))
    reject(channel, queue)
    reject(channel, queue)
    again = channel.wait_get(queue)
    (entry,) = deaths(again)
    assert list(entry) == [
        "count",
        "exchange",
        "original-expiration",
        "queue",
        "reason",
        "routing-keys",
        "time",
    ]
    assert list(again.headers) == [
        "z",
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
    ]


def test_same_queue_another_reason(channel: Channel, grave: str, name: Names) -> None:
    """§5.5: entries are by queue and reason: another reason is an entry of its own."""
    queue = name("work")
    channel.declare(queue, exclusive=True, arguments=dead_letters_to("", queue))
    channel.publish("", queue, b"x")
    reject(channel, queue)
    content = channel.wait_get(queue)
    # What a client publishes again with the headers goes on where it was.
    other = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=30))
    channel.publish("", other, b"x", Properties(headers=content.headers))
    newest, oldest = deaths(channel.wait_get(grave))
    assert list(newest.items()) == first_death(newest, "expired", other, "", other)
    assert list(oldest.items()) == first_death(oldest, "rejected", queue, "", queue)


# What clients put into x-death.


@pytest.mark.parametrize("value", [longstr("no"), long(1), boolean(True), table({}), Field("V", None)])
def test_x_death_that_is_no_array(channel: Channel, grave: str, value: Field) -> None:
    """§5.5: replaced by a fresh one; x-first-death-… is not added."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"x", properties=Properties(headers={"x-death": value, "n": long(1)}))
    reject(channel, queue)
    death = channel.wait_get(grave)
    (entry,) = deaths(death)
    assert list(entry.items()) == first_death(entry, "rejected", queue, "", queue)
    assert set(death.headers) == {"x-death", "n"}


def test_x_death_of_a_client_is_trusted(channel: Channel, grave: str) -> None:
    """§5.5: an entry of a client's for the same queue and reason is counted on, with the client's time."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    claimed = table(
        {
            "count": long(41),
            "reason": longstr("rejected"),
            "queue": longstr(queue),
            "time": timestamp(1),
            "exchange": longstr("elsewhere"),
            "routing-keys": strings("k"),
            "mine": boolean(True),
        }
    )
    publish_each(channel, queue, b"x", properties=Properties(headers={"x-death": array([claimed])}))
    reject(channel, queue)
    death = channel.wait_get(grave)
    (entry,) = deaths(death)
    assert entry["count"] == long(42)
    assert entry["time"] == timestamp(1)
    assert entry["exchange"] == longstr("elsewhere")
    assert entry["mine"] == boolean(True)
    assert set(death.headers) == {"x-death"}


def test_x_death_entries_are_grouped(channel: Channel, grave: str) -> None:
    """§5.5: grouped by queue and reason; a missing count is the number of duplicates."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    same = table({"reason": longstr("rejected"), "queue": longstr(queue)})
    other = table({"reason": longstr("expired"), "queue": longstr("other")})
    headers = {"x-death": array([other, same, same, same])}
    publish_each(channel, queue, b"x", properties=Properties(headers=headers))
    reject(channel, queue)
    newest, oldest = deaths(channel.wait_get(grave))
    assert (newest["queue"], newest["reason"], newest["count"]) == (
        longstr(queue),
        longstr("rejected"),
        long(4),
    )
    assert (oldest["queue"], oldest["reason"]) == (longstr("other"), longstr("expired"))


# Cycles.


def test_automatic_cycle_of_one_queue(channel: Channel, fanout: str) -> None:
    """§5.5 cycle rule: a message that expires in R isn't routed into R again; others of the exchange get it."""
    watched = observe(channel, fanout)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(fanout, ttl_ms=30))
    channel.call(QueueBind, queue=queue, exchange=fanout)
    channel.publish("", queue, b"x")
    assert channel.wait_get(watched).body == b"x"
    let_pass(channel, 60)
    assert drain(channel, queue) == []
    assert drain(channel, watched) == []


def test_automatic_cycle_of_two_queues(channel: Channel, fanout: str, name: Names) -> None:
    """§5.5 cycle rule: a → b → a with nothing but expiries is dropped on the way back."""
    first, second = name("a"), name("b")
    watched = observe(channel, fanout)
    channel.declare(second, exclusive=True, arguments=dead_letters_to(fanout, ttl_ms=30))
    channel.declare(first, exclusive=True, arguments=dead_letters_to("", second, ttl_ms=30))
    channel.call(QueueBind, queue=first, exchange=fanout)
    channel.publish("", first, b"x")
    death = channel.wait_get(watched)
    assert [entry["queue"] for entry in deaths(death)] == [longstr(second), longstr(first)]
    let_pass(channel, 60)
    assert [drain(channel, queue) for queue in (first, second, watched)] == [[], [], []]


def test_maxlen_cycle(channel: Channel, name: Names) -> None:
    """§5.5 cycle rule: a length is an automatic death too."""
    queue = name("q")
    arguments = dead_letters_to("", queue) | {"x-max-length": long(1)}
    channel.declare(queue, exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"1", b"2", b"3")
    let_pass(channel, 20)
    assert drain(channel, queue) == [b"3"]


def test_rejection_is_never_cycle_checked(channel: Channel, name: Names) -> None:
    """§5.5 cycle rule: a rejected message may come back into its own queue, after an expiry there also."""
    queue = name("q")
    channel.declare(queue, exclusive=True, arguments=dead_letters_to("", queue))
    channel.publish("", queue, b"x")
    for _ in range(3):
        reject(channel, queue)
    assert deaths(channel.wait_get(queue))[0]["count"] == long(3)


def test_a_rejection_on_the_way_breaks_the_cycle(channel: Channel, name: Names) -> None:
    """§5.5 cycle rule: a expires → b rejects → a: between the newest entry and a's there is a rejection."""
    first, second = name("a"), name("b")
    channel.declare(first, exclusive=True, arguments=dead_letters_to("", second, ttl_ms=30))
    channel.declare(second, exclusive=True, arguments=dead_letters_to("", first))
    channel.publish("", first, b"x")
    reject(channel, second)
    again = channel.wait_get(second)
    assert [(entry["queue"], entry["count"]) for entry in deaths(again)] == [
        (longstr(first), long(2)),
        (longstr(second), long(1)),
    ]


def test_a_rejection_before_the_cycle_does_not_break_it(channel: Channel, fanout: str, name: Names) -> None:
    """§5.5 cycle rule: rejected in work first, then a → b → a automatically: dropped."""
    first, second = name("a"), name("b")
    watched = observe(channel, fanout)
    channel.declare(second, exclusive=True, arguments=dead_letters_to(fanout, ttl_ms=30))
    channel.declare(first, exclusive=True, arguments=dead_letters_to("", second, ttl_ms=30))
    channel.call(QueueBind, queue=first, exchange=fanout)
    work = channel.declare(exclusive=True, arguments=dead_letters_to("", first))
    channel.publish("", work, b"x")
    reject(channel, work)
    queues = [entry["queue"] for entry in deaths(channel.wait_get(watched))]
    assert queues == [longstr(second), longstr(first), longstr(work)]
    let_pass(channel, 60)
    assert [drain(channel, queue) for queue in (first, second, watched)] == [[], [], []]


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
