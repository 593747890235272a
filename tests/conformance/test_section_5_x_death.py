"""amqp-behaviour §5.5: what x-death says, field by field, and the cycles that it serves to find."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Field, array, boolean, long, longstr, table, timestamp
from node.amqp.methods import BasicReject, ExchangeDeclare, QueueBind
from node.amqp.properties import Properties
from tests.conformance.death_steps import deaths, first_death, observe, reject, sorted_death, strings
from tests.conformance.queue_steps import dead_letters_to, drain, let_pass, publish_each
from tests.kit.amqp_client import Channel

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


# The first death.


def test_original_expiration(channel: Channel, grave: str) -> None:
    """§5.5, §5.2: the expiration property becomes original-expiration, at the end of the entry."""
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


def test_header_names(channel: Channel, grave: str) -> None:
    """§5.5: the headers of a first death; all headers are sorted then, the client's too, by bytes."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    headers = {"z": long(1), "a": longstr("b"), "x-e": long(2), "Z": long(3), "é": long(4)}
    publish_each(channel, queue, b"x", properties=Properties(headers=headers))
    reject(channel, queue)
    came = channel.wait_get(grave).headers
    assert list(came.items()) == [
        ("Z", long(3)),
        ("a", longstr("b")),
        ("x-death", came["x-death"]),
        ("x-e", long(2)),
        ("x-first-death-exchange", longstr("")),
        ("x-first-death-queue", longstr(queue)),
        ("x-first-death-reason", longstr("rejected")),
        ("z", long(1)),
        ("é", long(4)),
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
    """§5 traps: count is a 64-bit `l`, time a `T`; §0.4: in rewritten headers a client's `L` is `l`."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    entries = b"\x01nL" + (5).to_bytes(8, "big")
    raw = b"\x20\x00" + len(entries).to_bytes(4, "big") + entries
    publish_each(channel, queue, b"x", properties=raw)
    reject(channel, queue)
    header = channel.wait_get(grave).header
    assert b"\x05countl" + (1).to_bytes(8, "big") + b"\x06reasonS" + (8).to_bytes(4, "big") in header
    assert b"\x04timeT" in header
    assert b"\x01nl" + (5).to_bytes(8, "big") in header


# Dying again.


def test_same_death_again(channel: Channel, name: Names) -> None:
    """§5.5: same queue and reason: count + 1, fields sorted; exchange, keys and time stay the first."""
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
    """§5.5: work → rejected → retry → expired → work: two entries, the newest in front, counts grow.

    Only the entry of the first death has the order of `first_death`; later ones are sorted from the start.
    """
    work, retry = name("work"), name("retry")
    channel.declare(work, exclusive=True, arguments=dead_letters_to("", retry))
    channel.declare(retry, exclusive=True, arguments=dead_letters_to("", work, ttl_ms=30))
    channel.publish("", work, b"x")
    for count in (1, 2, 3):
        reject(channel, work)
        back = channel.wait_get(work, no_ack=False)
        expired, rejected = deaths(back)
        assert list(expired.items()) == sorted_death(expired, count, "expired", retry, "", retry)
        if count == 1:
            assert list(rejected.items()) == first_death(rejected, "rejected", work, "", work)
        else:
            assert list(rejected.items()) == sorted_death(rejected, count, "rejected", work, "", work)
        assert back.headers["x-first-death-queue"] == longstr(work)
        assert back.headers["x-first-death-reason"] == longstr("rejected")
        assert back.headers["x-first-death-exchange"] == longstr("")
        channel.send(BasicReject, delivery_tag=back.method.delivery_tag, requeue=True)


def test_older_deaths_turn_round(channel: Channel) -> None:
    """§5.5: the newest is in front, but the others, when they are two or more, are reversed by each death."""
    orders = ([0], [1, 0], [2, 0, 1], [3, 1, 0, 2], [4, 2, 0, 1, 3])
    queues = [channel.declare(exclusive=True)]
    for _ in orders:
        queues.insert(0, channel.declare(exclusive=True, arguments=dead_letters_to("", queues[0])))
    channel.publish("", queues[0], b"x")
    for place, order in enumerate(orders):
        reject(channel, queues[place])
        content = channel.wait_get(queues[place + 1], no_ack=False)
        assert [entry["queue"] for entry in deaths(content)] == [longstr(queues[each]) for each in order]
        channel.send(BasicReject, delivery_tag=content.method.delivery_tag, requeue=True)


def test_original_expiration_sorts_in(channel: Channel, name: Names) -> None:
    """§5.5: original-expiration takes its place among the sorted fields."""
    queue = name("work")
    channel.declare(queue, exclusive=True, arguments=dead_letters_to("", queue))
    channel.publish("", queue, b"x", Properties(expiration="60000"))
    reject(channel, queue)
    reject(channel, queue)
    (entry,) = deaths(channel.wait_get(queue))
    assert list(entry) == [
        "count",
        "exchange",
        "original-expiration",
        "queue",
        "reason",
        "routing-keys",
        "time",
    ]


def test_same_queue_another_reason(channel: Channel, grave: str) -> None:
    """§5.5: entries are by queue and reason: another reason is an entry of its own."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    channel.publish("", queue, b"x")
    reject(channel, queue)
    # What a client publishes again with its headers goes on from there.
    headers = channel.wait_get(grave).headers
    channel.publish("", queue, b"x", Properties(headers=headers, expiration="20"))
    newest, oldest = deaths(channel.wait_get(grave))
    assert (newest["queue"], newest["reason"]) == (longstr(queue), longstr("expired"))
    assert newest["original-expiration"] == longstr("20")
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


def test_a_single_entry_without_count(channel: Channel, grave: str) -> None:
    """§5.5: one entry of a client's without a count is not counted: its first count is 1."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    claimed = table({"reason": longstr("rejected"), "queue": longstr(queue)})
    headers = {"x-death": array([claimed])}
    publish_each(channel, queue, b"x", properties=Properties(headers=headers))
    reject(channel, queue)
    (entry,) = deaths(channel.wait_get(grave))
    assert list(entry.items()) == [
        ("count", long(1)),
        ("queue", longstr(queue)),
        ("reason", longstr("rejected")),
    ]


# Cycles.


def test_automatic_cycle_of_one_queue(channel: Channel, fanout: str) -> None:
    """§5.5 cycle rule: what expires in R isn't routed into R again; other queues get it."""
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


def test_a_rejection_in_the_queue_itself_breaks_the_cycle(channel: Channel, name: Names) -> None:
    """§5.5 cycle rule: R's own entry counts too: rejected in R, expired elsewhere, it may come back."""
    work, retry = name("work"), name("retry")
    channel.declare(retry, exclusive=True, arguments=dead_letters_to("", work, ttl_ms=30))
    channel.declare(work, exclusive=True, arguments=dead_letters_to("", retry))
    channel.publish("", work, b"x")
    reject(channel, work)
    assert channel.wait_get(work).body == b"x"


def test_an_older_rejection_does_not_break_the_cycle(channel: Channel, fanout: str) -> None:
    """§5.5 cycle rule: entries behind R's don't matter: rejected elsewhere, then expired in R: dropped."""
    watched = observe(channel, fanout)
    queue = channel.declare(exclusive=True, arguments=dead_letters_to(fanout, ttl_ms=30))
    channel.call(QueueBind, queue=queue, exchange=fanout)
    work = channel.declare(exclusive=True, arguments=dead_letters_to("", queue))
    channel.publish("", work, b"x")
    reject(channel, work)
    assert [entry["queue"] for entry in deaths(channel.wait_get(watched))] == [longstr(queue), longstr(work)]
    let_pass(channel, 60)
    assert [drain(channel, each) for each in (queue, watched)] == [[], []]
