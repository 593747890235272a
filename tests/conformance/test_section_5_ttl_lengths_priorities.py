"""amqp-behaviour §5.1 to §5.4 and §5.6: what a full or a slow queue loses, and the order of priorities."""

import re
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from node.amqp.field_table import Field, Table, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    QueueDeclare,
    QueuePurge,
    QueuePurgeOk,
)
from node.amqp.properties import Properties
from tests.conformance.queue_steps import (
    dead_letters_to,
    drain,
    expect_no_delivery,
    let_pass,
    publish_each,
    ready_count,
    take,
)
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.patience import wait_until
from tests.kit.servers import Admin

Names = Callable[[str], str]

MINUTE_MS = 60000
REJECT: Table = {"x-overflow": longstr("reject-publish")}
REJECT_DLX: Table = {"x-overflow": longstr("reject-publish-dlx")}


@pytest.fixture
def set_policy(admin: Admin, name: Names) -> Iterator[Callable[[str, Mapping[str, object]], None]]:
    """Set the policy of one queue, again and again if need be; `{}` clears it. It goes with the test."""
    policies: dict[str, str] = {}

    def apply(queue: str, definition: Mapping[str, object]) -> None:
        if definition:
            policy = policies.get(queue) or name("policy")
            admin.set_policy("/", policy, f"^{re.escape(queue)}$", definition, 0, "queues")
            policies[queue] = policy
        elif queue in policies:
            admin.clear_policy("/", policies.pop(queue))

    yield apply
    for queue in list(policies):
        apply(queue, {})


@pytest.fixture
def grave(channel: Channel) -> str:
    """A queue for dead letters."""
    return channel.declare(exclusive=True)


def reason(content: Content) -> Field:
    return content.headers["x-first-death-reason"]


def confirmed(channel: Channel, queue: str, body: bytes, properties: Properties | bytes = b"\0\0") -> bool:
    """Publish on a confirming channel: True for an ack, False for a nack."""
    channel.publish("", queue, body, properties)
    arrived = channel.connection.next_frame(channel.number)
    kind = arrived.payload[:4]
    assert kind in (b"\0\x3c\0\x50", b"\0\x3c\0\x78"), str(arrived)
    return kind == b"\0\x3c\0\x50"


@pytest.fixture
def confirming(connection: Connection) -> Channel:
    """Channel 2, in confirm mode."""
    channel = connection.channel(2)
    channel.call(ConfirmSelect)
    return channel


# §5.1.


def test_step_1_reject_before_the_waiting_consumer(channel: Channel, confirming: Channel) -> None:
    """§5.1 step 1: with max-length 0 and reject-publish all is rejected, though a consumer waits."""
    queue = channel.declare(exclusive=True, arguments=REJECT | {"x-max-length": long(0)})
    channel.consume(queue, no_ack=True)
    assert not confirmed(confirming, queue, b"x")
    expect_no_delivery(channel, queue)


def test_step_1_reject_with_dead_letter(channel: Channel, confirming: Channel, grave: str) -> None:
    """§5.1 step 1, §5.4: reject-publish-dlx nacks and dead-letters the new message, reason maxlen."""
    arguments = REJECT_DLX | dead_letters_to("", grave) | {"x-max-length": long(1)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    assert confirmed(confirming, queue, b"old")
    assert not confirmed(confirming, queue, b"new")
    death = channel.wait_get(grave)
    assert (death.body, reason(death)) == (b"new", longstr("maxlen"))
    assert drain(channel, queue) == [b"old"]


@pytest.mark.parametrize("argument", ["x-message-ttl", "x-max-length"])
def test_step_3_idle_consumer(channel: Channel, confirming: Channel, argument: str) -> None:
    """§5.1 step 3: ttl 0 or length 0 with drop-head: an idle consumer gets the message all the same."""
    queue = channel.declare(exclusive=True, arguments={argument: long(0)})
    channel.consume(queue)
    assert confirmed(confirming, queue, b"x")
    assert channel.deliver().body == b"x"
    channel.send(BasicAck, delivery_tag=1)


def test_step_3_expiration_zero(channel: Channel, confirming: Channel) -> None:
    """§5.1 step 3: expiration 0 is for an idle consumer, or for nobody (§5.2, `immediate` of old)."""
    queue = channel.declare(exclusive=True)
    assert confirmed(confirming, queue, b"for nobody", Properties(expiration="0"))
    channel.consume(queue, no_ack=True)
    expect_no_delivery(channel, queue)
    confirming.publish("", queue, b"x", Properties(expiration="0"))
    assert channel.deliver().body == b"x"


def test_step_4_ttl_zero(channel: Channel, confirming: Channel) -> None:
    """§5.1 step 4: ttl 0 and nobody waits: discarded and confirmed."""
    queue = channel.declare(exclusive=True, arguments={"x-message-ttl": long(0)})
    assert confirmed(confirming, queue, b"x")
    assert ready_count(channel, queue) == 0


def test_step_4_ttl_zero_with_dead_letters(channel: Channel, confirming: Channel, grave: str) -> None:
    """§5.1 step 4: with a dead-letter exchange it goes there, reason expired."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave, ttl_ms=0))
    assert confirmed(confirming, queue, b"x")
    assert reason(channel.wait_get(grave)) == longstr("expired")
    assert ready_count(channel, queue) == 0


# §5.2.

TTLS = [
    # argument, policy, expiration; None: not set
    (60, None, None),
    (None, 60, None),
    (None, None, 60),
    (60, MINUTE_MS, MINUTE_MS),
    (MINUTE_MS, 60, MINUTE_MS),
    (MINUTE_MS, MINUTE_MS, 60),
]


@pytest.mark.parametrize(("argument", "policy", "expiration"), TTLS)
def test_the_least_ttl_counts(
    channel: Channel,
    grave: str,
    set_policy: Callable[[str, Mapping[str, object]], None],
    argument: int | None,
    policy: int | None,
    expiration: int | None,
) -> None:
    """§5.2: min(argument, policy, expiration): not before that time, and long before the others, which are a minute."""
    arguments = dead_letters_to("", grave, ttl_ms=argument)
    queue = channel.declare(exclusive=True, arguments=arguments)
    if policy is not None:
        set_policy(queue, {"message-ttl": policy})
    began = time.monotonic()
    properties = Properties(expiration=None if expiration is None else str(expiration))
    channel.publish("", queue, b"x", properties)
    assert reason(channel.wait_get(grave)) == longstr("expired")
    assert time.monotonic() - began >= 0.06


def test_ttl_is_fixed_when_the_message_comes(
    channel: Channel, grave: str, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.2: a later policy neither shortens nor lengthens the life of messages that are queued."""
    long_first = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    short_first = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    set_policy(long_first, {"message-ttl": MINUTE_MS})
    set_policy(short_first, {"message-ttl": 300})
    publish_each(channel, long_first, b"lives on")
    publish_each(channel, short_first, b"dies")
    set_policy(long_first, {"message-ttl": 30})
    set_policy(short_first, {})
    assert channel.wait_get(grave).body == b"dies"
    assert drain(channel, long_first) == [b"lives on"]
    channel.publish("", long_first, b"new", b"\0\0")
    assert channel.wait_get(grave).body == b"new"


def test_expired_only_at_the_head(channel: Channel, grave: str) -> None:
    """§5.2: behind an unexpired message an expired one stays, counted, and goes when it reaches the head."""
    queue = channel.declare(exclusive=True, arguments=dead_letters_to("", grave))
    publish_each(channel, queue, b"head")
    publish_each(channel, queue, b"expired", properties=Properties(expiration="30"))
    let_pass(channel, 60)
    assert ready_count(channel, queue) == 2
    assert channel.get(grave) is None
    assert drain(channel, queue) == [b"head"]
    assert channel.wait_get(grave).body == b"expired"


def test_an_expired_message_is_not_delivered(channel: Channel) -> None:
    """§5.2: when the head is consumed the expired one behind it is skipped, for a consumer as for a get."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"head")
    publish_each(channel, queue, b"expired", properties=Properties(expiration="30"))
    publish_each(channel, queue, b"tail")
    let_pass(channel, 60)
    channel.consume(queue, no_ack=True)
    assert [content.body for content in take(channel, 2)] == [b"head", b"tail"]
    expect_no_delivery(channel, queue)


def test_expiry_needs_no_client(channel: Channel) -> None:
    """§5.2: by a timer: several of one queue go each in its time, nobody looks."""
    queue = channel.declare(exclusive=True)
    for ttl in ("30", "60", "90"):
        channel.publish("", queue, b"x", Properties(expiration=ttl))
    publish_each(channel, queue, b"stays")
    let_pass(channel, 120)
    assert ready_count(channel, queue) == 1


def test_expiration_is_kept_on_delivery(channel: Channel) -> None:
    """§5.2: the property arrives as it was sent."""
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"x", Properties(expiration="60000"))
    content = channel.get(queue)
    assert content is not None
    assert content.properties.expiration == "60000"


def test_the_head_of_a_priority_queue(channel: Channel) -> None:
    """§5.2: the head is that of the highest level that has messages: behind it an expired lower one stays."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(2)})
    publish_each(channel, queue, b"high", properties=Properties(priority=2))
    publish_each(channel, queue, b"low", properties=Properties(priority=1, expiration="30"))
    let_pass(channel, 60)
    assert ready_count(channel, queue) == 2
    assert drain(channel, queue) == [b"high"]


def test_lower_levels_expire_when_the_higher_are_empty(channel: Channel) -> None:
    """§5.2: each level in its turn: expired messages of several levels go without anybody looking."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(2)})
    for priority in (2, 1):
        publish_each(channel, queue, b"x", properties=Properties(priority=priority, expiration="30"))
    publish_each(channel, queue, b"stays", properties=Properties(priority=0))
    let_pass(channel, 60)
    wait_until(lambda: ready_count(channel, queue) == 1, "two levels have expired")
    assert drain(channel, queue) == [b"stays"]


# §5.3.


def lives(admin: Admin, queue: str) -> bool:
    """Whether the queue is there, without a declare, which would keep it alive."""
    return queue in admin.list_queues("/")


@pytest.mark.parametrize("by_policy", [False, True])
def test_queue_expiry(
    channel: Channel,
    name: Names,
    set_policy: Callable[[str, Mapping[str, object]], None],
    by_policy: bool,
) -> None:
    """§5.3: unused for the whole period; publishing doesn't refresh. By argument or policy."""
    queue = name("q")
    if by_policy:
        set_policy(queue, {"expires": 150})
    began = time.monotonic()
    channel.declare(queue, arguments={} if by_policy else {"x-expires": long(150)})

    def is_gone() -> bool:
        channel.publish("", queue, b"x", mandatory=True)
        channel.send(BasicCancel, consumer_tag="a round trip")
        arrived = channel.connection.next_frame(1)
        if arrived.payload.startswith(b"\0\x3c\0\x1f"):
            return False
        for _ in range(3):
            channel.connection.next_frame(1)
        return True

    wait_until(is_gone, "the queue has expired")
    assert time.monotonic() - began >= 0.15
    channel.send(QueueDeclare, queue=queue, passive=True)
    channel.expect_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", QueueDeclare)


@pytest.mark.parametrize("use", ["get", "declare", "passive declare"])
def test_queue_expiry_is_put_off(channel: Channel, admin: Admin, name: Names, use: str) -> None:
    """§5.3: a get, also of nothing, and a declare, also a passive one, start the period again."""
    queue, arguments = name("q"), {"x-expires": long(300)}
    channel.declare(queue, arguments=arguments)
    for _ in range(4):
        let_pass(channel, 100)
        if use == "get":
            assert channel.get(queue) is None
        elif use == "declare":
            channel.declare(queue, arguments=arguments)
        else:
            channel.call(QueueDeclare, queue=queue, passive=True)
    assert lives(admin, queue)
    wait_until(lambda: not lives(admin, queue), "the queue has expired")


def test_queue_expiry_waits_for_consumers(channel: Channel, admin: Admin, name: Names) -> None:
    """§5.3: idle while there are consumers, begins when the last one leaves."""
    queue = channel.declare(name("q"), arguments={"x-expires": long(100)})
    tag = channel.consume(queue)
    let_pass(channel, 250)
    assert lives(admin, queue)
    channel.call(BasicCancel, consumer_tag=tag)
    wait_until(lambda: not lives(admin, queue), "the queue has expired")


def test_queue_expiry_does_not_dead_letter(channel: Channel, admin: Admin, grave: str, name: Names) -> None:
    """§5.3: the messages of a queue that expires are gone, as with queue.delete."""
    arguments = dead_letters_to("", grave) | {"x-expires": long(60)}
    queue = channel.declare(name("q"), arguments=arguments)
    channel.publish("", queue, b"x")
    wait_until(lambda: not lives(admin, queue), "the queue has expired")
    let_pass(channel, 20)
    assert drain(channel, grave) == []


# §5.4.


def test_max_length(channel: Channel) -> None:
    """§5.4: drop-head, the default, drops the oldest."""
    queue = channel.declare(exclusive=True, arguments={"x-max-length": long(2)})
    publish_each(channel, queue, b"1", b"2", b"3", b"4")
    assert ready_count(channel, queue) == 2
    assert drain(channel, queue) == [b"3", b"4"]


def test_max_length_bytes(channel: Channel) -> None:
    """§5.4: bytes of the payload only: long headers and keys don't count."""
    queue = channel.declare(exclusive=True, arguments={"x-max-length-bytes": long(10)})
    headers = Properties(headers={"long": longstr("x" * 1000)})
    publish_each(channel, queue, b"1234", b"5678", b"90", properties=headers)
    assert ready_count(channel, queue) == 3
    publish_each(channel, queue, b"!", properties=headers)
    assert drain(channel, queue) == [b"5678", b"90", b"!"]


def test_both_lengths(channel: Channel) -> None:
    """§5.4: dropped one at a time until within both limits."""
    arguments: Table = {"x-max-length": long(3), "x-max-length-bytes": long(6)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"1", b"2", b"3", b"4")
    assert ready_count(channel, queue) == 3
    publish_each(channel, queue, b"56789")
    assert drain(channel, queue) == [b"4", b"56789"]


def test_a_body_larger_than_the_limit(channel: Channel) -> None:
    """§5.4: leaves the queue empty."""
    queue = channel.declare(exclusive=True, arguments={"x-max-length-bytes": long(5)})
    publish_each(channel, queue, b"1", b"2", b"123456")
    assert ready_count(channel, queue) == 0


def test_the_unacked_do_not_count(channel: Channel) -> None:
    """§5.4: only ready messages."""
    queue = channel.declare(exclusive=True, arguments={"x-max-length": long(2)})
    publish_each(channel, queue, b"1", b"2")
    for _ in range(2):
        channel.get(queue, no_ack=False)
    publish_each(channel, queue, b"3", b"4")
    assert drain(channel, queue) == [b"3", b"4"]


def test_requeue_over_the_limit(channel: Channel, grave: str) -> None:
    """§5.4: limit 2, ready 2 and 3, 0 and 1 requeued: 2 and 3 remain; the others are dead letters, maxlen."""
    arguments = dead_letters_to("", grave) | {"x-max-length": long(2)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"0", b"1")
    for _ in range(2):
        channel.get(queue, no_ack=False)
    publish_each(channel, queue, b"2", b"3")
    channel.send(BasicNack, delivery_tag=2, multiple=True)
    assert drain(channel, queue) == [b"2", b"3"]
    deaths = [channel.wait_get(grave) for _ in range(2)]
    assert [(death.body, reason(death)) for death in deaths] == [
        (b"0", longstr("maxlen")),
        (b"1", longstr("maxlen")),
    ]


def test_drop_head_dead_letters(channel: Channel, grave: str) -> None:
    """§5.4, §5.5: what drop-head drops is a dead letter, maxlen, oldest first."""
    arguments = dead_letters_to("", grave) | {"x-max-length": long(1)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    publish_each(channel, queue, b"1", b"2", b"3")
    deaths = [channel.wait_get(grave) for _ in range(2)]
    assert [(death.body, reason(death)) for death in deaths] == [
        (b"1", longstr("maxlen")),
        (b"2", longstr("maxlen")),
    ]


def test_priorities_drop_the_most_important(channel: Channel) -> None:
    """§5.4: the head is the highest priority: 0, 5, 5, 1 with limit 2 keeps 1 and 0."""
    arguments: Table = {"x-max-priority": long(5), "x-max-length": long(2)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    for body, priority in ((b"0", 0), (b"5", 5), (b"5", 5), (b"1", 1)):
        publish_each(channel, queue, body, properties=Properties(priority=priority))
    assert drain(channel, queue) == [b"1", b"0"]


@pytest.mark.parametrize("limit", [{"x-max-length": long(2)}, {"x-max-length-bytes": long(2)}])
def test_reject_publish(channel: Channel, confirming: Channel, limit: Table) -> None:
    """§5.4: nack in confirm mode; the old stay; room again means ack again."""
    queue = channel.declare(exclusive=True, arguments=REJECT | limit)
    answers = [confirmed(confirming, queue, body) for body in (b"1", b"2", b"3")]
    assert answers == [True, True, False]
    assert channel.get(queue) is not None
    assert confirmed(confirming, queue, b"4")
    assert drain(channel, queue) == [b"2", b"4"]


def test_reject_publish_without_confirms(channel: Channel, grave: str) -> None:
    """§5.4: silently dropped, and nothing is dead-lettered."""
    arguments = REJECT | dead_letters_to("", grave) | {"x-max-length": long(1)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    for body in (b"1", b"2"):
        channel.publish("", queue, body, mandatory=True)
    assert drain(channel, queue) == [b"1"]
    channel.sync()
    let_pass(channel, 20)
    assert drain(channel, grave) == []


def test_reject_publish_lets_requeues_in(channel: Channel, confirming: Channel) -> None:
    """§5.4: the limit is for publishes: a requeue over it drops nothing."""
    queue = channel.declare(exclusive=True, arguments=REJECT | {"x-max-length": long(1)})
    assert confirmed(confirming, queue, b"1")
    channel.get(queue, no_ack=False)
    assert confirmed(confirming, queue, b"2")
    channel.send(BasicNack, delivery_tag=1)
    assert drain(channel, queue) == [b"1", b"2"]


def test_lower_limit_by_policy(
    channel: Channel, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.4: drops head messages immediately, with drop-head."""
    queue = channel.declare(exclusive=True)
    publish_each(channel, queue, b"1", b"2", b"3")
    set_policy(queue, {"max-length": 1})
    wait_until(lambda: ready_count(channel, queue) == 1, "the policy has dropped two")
    assert drain(channel, queue) == [b"3"]


def test_lower_limit_by_policy_with_reject_publish(
    channel: Channel, confirming: Channel, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.4: only with drop-head: a queue of reject-publish keeps the old, and rejects the new."""
    queue = channel.declare(exclusive=True, arguments=REJECT)
    publish_each(channel, queue, b"1", b"2", b"3")
    set_policy(queue, {"max-length": 1})
    wait_until(lambda: not confirmed(confirming, queue, b"x"), "the policy rejects")
    assert drain(channel, queue)[:3] == [b"1", b"2", b"3"]


# §5.6.


def prioritised(channel: Channel, queue: str, *messages: tuple[bytes, int | None]) -> None:
    for body, priority in messages:
        publish_each(channel, queue, body, properties=Properties(priority=priority))


def test_highest_priority_first(channel: Channel) -> None:
    """§5.6: FIFO in a level; absent is 0; above the maximum is the maximum, the property stays."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(3)})
    prioritised(channel, queue, (b"0", 0), (b"none", None), (b"3", 3), (b"200", 200), (b"1", 1), (b"3b", 3))
    got = [channel.get(queue) for _ in range(6)]
    assert [(content.body, content.properties.priority) for content in got if content] == [
        (b"3", 3),
        (b"200", 200),
        (b"3b", 3),
        (b"1", 1),
        (b"0", 0),
        (b"none", None),
    ]


def test_max_priority_zero(channel: Channel) -> None:
    """§5.6: with one level all messages are equal."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(0)})
    prioritised(channel, queue, (b"1", None), (b"2", 5), (b"3", 0))
    assert drain(channel, queue) == [b"1", b"2", b"3"]


def test_without_max_priority(channel: Channel) -> None:
    """§5.6: the argument makes a priority queue, nothing else does."""
    queue = channel.declare(exclusive=True)
    prioritised(channel, queue, (b"1", 1), (b"9", 9))
    assert drain(channel, queue) == [b"1", b"9"]


def test_priorities_are_not_for_policies(
    channel: Channel, set_policy: Callable[[str, Mapping[str, object]], None]
) -> None:
    """§5.6: argument only: as a policy there is no such key."""
    queue = channel.declare(exclusive=True)
    with pytest.raises(RuntimeError):
        set_policy(queue, {"max-priority": 9})


def test_prefetch_hides_priorities(channel: Channel) -> None:
    """§5.6: what a consumer holds already isn't overtaken; then the highest comes."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(9)})
    channel.call(BasicQos, prefetch_count=2)
    channel.consume(queue)
    prioritised(channel, queue, (b"0", 0), (b"1", 1), (b"2", 2), (b"9", 9))
    assert [content.body for content in take(channel, 2)] == [b"0", b"1"]
    channel.send(BasicAck, delivery_tag=2, multiple=True)
    assert [content.body for content in take(channel, 2)] == [b"9", b"2"]


def test_requeue_into_its_level(channel: Channel) -> None:
    """§5.6, §4.11: a requeued message goes back to its place in its level."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(9)})
    prioritised(channel, queue, (b"5a", 5), (b"5b", 5), (b"0", 0))
    channel.get(queue, no_ack=False)
    prioritised(channel, queue, (b"9", 9))
    channel.send(BasicNack, delivery_tag=1)
    assert drain(channel, queue) == [b"9", b"5a", b"5b", b"0"]


def test_counts_span_all_levels(channel: Channel) -> None:
    """§5.6: ready count, message-count of get, and purge."""
    queue = channel.declare(exclusive=True, arguments={"x-max-priority": long(9)})
    prioritised(channel, queue, (b"0", 0), (b"5", 5), (b"9", 9))
    assert ready_count(channel, queue) == 3
    content = channel.get(queue, no_ack=False)
    assert content is not None
    assert content.method.message_count == 2
    assert channel.call(QueuePurge, queue=queue) == QueuePurgeOk(message_count=2)


def test_reject_publish_spans_all_levels(channel: Channel, confirming: Channel) -> None:
    """§5.6: limits span all levels."""
    arguments = REJECT | {"x-max-priority": long(9), "x-max-length": long(2)}
    queue = channel.declare(exclusive=True, arguments=arguments)
    answers = [confirmed(confirming, queue, b"x", Properties(priority=level)) for level in (0, 5, 9)]
    assert answers == [True, True, False]
