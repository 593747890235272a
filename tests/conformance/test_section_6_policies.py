"""amqp-behaviour §6.1 and §6.2: what policies and operator policies do to queues and exchanges."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from node.amqp.field_table import Field, Table, longstr
from node.amqp.methods import BasicReject, ExchangeDeclare, QueueBind, QueueDeclare, QueueDelete
from tests.conformance.entities import is_routed, limited_channel, queue_exists, refused
from tests.conformance.queue_steps import drain, ready_count
from tests.kit.amqp_client import Channel, Connection
from tests.kit.patience import wait_until
from tests.kit.servers import Admin

Name = Callable[[str], str]
Connect = Callable[..., Connection]
SetPolicy = Callable[..., str]

PUBLISHED = 8
"""`kept` publishes so many messages: more than any limit of these tests."""


def integer(value: int) -> Field:
    return Field("I", value)


@pytest.fixture
def prefix(name: Name) -> str:
    """The start of the names that this test's policies match."""
    return name("policy")


@pytest.fixture
def set_policy(admin: Admin, name: Name, prefix: str) -> Iterator[SetPolicy]:
    """Set policies of `/`, by default for names with `prefix`; they go with the test."""
    made: list[tuple[Callable[[str, str], None], str]] = []

    def add(definition: Mapping[str, Any], pattern: str | None = None, **options: Any) -> str:
        made.append((admin.clear_policy, name("policy")))
        admin.set_policy("/", made[-1][1], pattern or f"^{prefix}", definition, **options)
        return made[-1][1]

    yield add
    for clear, policy in made:
        clear("/", policy)


@pytest.fixture
def set_operator_policy(admin: Admin, name: Name, prefix: str) -> Iterator[SetPolicy]:
    """As `set_policy`, of operator policies."""
    made: list[str] = []

    def add(definition: Mapping[str, Any], **options: Any) -> str:
        made.append(name("operator"))
        admin.set_operator_policy("/", made[-1], f"^{prefix}", definition, **options)
        return made[-1]

    yield add
    for policy in made:
        admin.clear_operator_policy("/", policy)


def fill(channel: Channel, queue: str, number: int = PUBLISHED) -> None:
    for each in range(number):
        channel.publish("", queue, b"%d" % each)


def kept(channel: Channel, queue: str) -> int:
    """Return how many of `PUBLISHED` messages the queue keeps; it is empty afterwards."""
    fill(channel, queue)
    # Not by `ready_count`: RabbitMQ's queues answer it before messages that wait in their mailbox.
    return len(drain(channel, queue))


# §6.1 Policy objects


@pytest.mark.parametrize(
    "pattern", ["{}", "{}.*z$", "^a.+{}", "(?i)^A-{}", "(?=a)a-{}", "a-{}|nothing", "a-{}+"]
)
def test_pattern_is_an_unanchored_search(
    channel: Channel, set_policy: SetPolicy, prefix: str, pattern: str
) -> None:
    """§6.1: pattern (PCRE, unanchored search)."""
    set_policy({"max-length": 3}, pattern.format(prefix))
    assert kept(channel, channel.declare(f"a-{prefix}-z", exclusive=True)) == 3
    assert kept(channel, channel.declare(f"b-{prefix[:-2]}", exclusive=True)) == PUBLISHED


def test_one_policy_applies(channel: Channel, set_policy: SetPolicy, prefix: str) -> None:
    """§6.1: the highest priority among the matches, without merging; the default priority is 0."""
    set_policy({"max-length": 3, "overflow": "reject-publish"}, priority=-1)
    set_policy({"max-length": 4})
    queue = channel.declare(prefix)
    fill(channel, queue)
    # drop-head: the `overflow` of the other policy has no part in it.
    assert drain(channel, queue) == [b"4", b"5", b"6", b"7"]
    set_policy({"max-length-bytes": 1000}, priority=1)
    wait_until(lambda: kept(channel, queue) == PUBLISHED, "the limit of the lower policy is lifted")


def test_one_operator_policy_applies(channel: Channel, set_operator_policy: SetPolicy, prefix: str) -> None:
    """§6.1: the same of operator policies."""
    set_operator_policy({"max-length": 3}, priority=1)
    set_operator_policy({"max-length-bytes": 1000}, priority=2)
    assert kept(channel, channel.declare(prefix, exclusive=True)) == PUBLISHED


@pytest.mark.parametrize(("apply_to", "ready"), [("all", 3), ("queues", 3), ("exchanges", PUBLISHED)])
def test_apply_to_queues(
    channel: Channel, set_policy: SetPolicy, prefix: str, apply_to: str, ready: int
) -> None:
    """§6.1: apply-to, seen at a queue."""
    set_policy({"max-length": 3}, apply_to=apply_to)
    assert kept(channel, channel.declare(prefix, exclusive=True)) == ready


@pytest.mark.parametrize(("apply_to", "works"), [("all", True), ("queues", False), ("exchanges", True)])
def test_apply_to_exchanges(
    channel: Channel, set_policy: SetPolicy, prefix: str, apply_to: str, works: bool
) -> None:
    """§6.1: apply-to, seen at an exchange."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange="amq.fanout")
    set_policy({"alternate-exchange": "amq.fanout"}, apply_to=apply_to)
    channel.call(ExchangeDeclare, exchange=prefix, type="direct", auto_delete=True)
    assert is_routed(channel, prefix) == works


def test_policy_is_of_its_vhost(
    connect: Connect, make_vhost: Callable[[], str], set_policy: SetPolicy, prefix: str
) -> None:
    """§6.1: vhost."""
    set_policy({"max-length": 3})
    channel = connect(vhost=make_vhost()).channel()
    assert kept(channel, channel.declare(prefix, exclusive=True)) == PUBLISHED


FOREIGN_KEYS = [
    {"max-age": "1D"},
    {"stream-max-segment-size-bytes": 500},
    {"queue-leader-locator": "client-local"},
    {"initial-cluster-size": 1},
    {"dead-letter-strategy": "at-most-once"},
]


@pytest.mark.parametrize("foreign", FOREIGN_KEYS)
def test_policy_with_a_key_of_another_queue_type(
    channel: Channel, set_policy: SetPolicy, prefix: str, foreign: dict[str, Any]
) -> None:
    """§6.1: such a policy does not apply to classic queues; the next best one does."""
    set_policy({"max-length": 3} | foreign, priority=1)
    queue = channel.declare(prefix)
    assert kept(channel, queue) == PUBLISHED
    set_policy({"max-length": 4})
    wait_until(lambda: kept(channel, queue) == 4, "the policy that can apply does")


def test_policy_takes_effect_on_existing_queues(
    channel: Channel, admin: Admin, set_policy: SetPolicy, prefix: str
) -> None:
    """§6.1: re-evaluated on any policy change; limits trim at once, without a publish."""
    queue = channel.declare(prefix)
    fill(channel, queue)
    wait_until(lambda: ready_count(channel, queue) == PUBLISHED, "all are there")
    policy = set_policy({"max-length": 5})
    wait_until(lambda: ready_count(channel, queue) == 5, "the new policy trims")
    admin.set_policy("/", policy, f"^{prefix}", {"max-length": 4})
    wait_until(lambda: ready_count(channel, queue) == 4, "the changed policy trims")
    set_policy({"max-length": 2}, priority=1)
    wait_until(lambda: ready_count(channel, queue) == 2, "the better policy trims")
    assert drain(channel, queue) == [b"6", b"7"]


def test_policy_cleared(channel: Channel, admin: Admin, set_policy: SetPolicy, prefix: str) -> None:
    """§6.1: … and on its end."""
    policy, queue = set_policy({"max-length": 3}), channel.declare(prefix)
    assert kept(channel, queue) == 3
    admin.set_policy("/", policy, "^no such name$", {"max-length": 3})
    wait_until(lambda: kept(channel, queue) == PUBLISHED, "the policy no longer matches")


def test_policy_on_existing_exchange(channel: Channel, set_policy: SetPolicy, prefix: str) -> None:
    """§6.1: takes effect immediately on existing exchanges."""
    channel.call(ExchangeDeclare, exchange=prefix, type="direct")
    channel.call(QueueBind, queue=channel.declare(exclusive=True), exchange="amq.fanout")
    assert not is_routed(channel, prefix)
    set_policy({"alternate-exchange": "amq.fanout"})
    wait_until(lambda: is_routed(channel, prefix), "the alternate exchange is used")


def test_policy_and_argument_equivalence(channel: Channel, set_policy: SetPolicy, prefix: str) -> None:
    """§6.1: does not affect argument-equivalence checks."""
    set_policy({"max-length": 3})
    queue = channel.declare(prefix)
    channel.declare(queue)
    text = (
        f"inequivalent arg 'x-max-length' for queue '{queue}' in vhost '/': "
        "received the value '3' of type 'signedint' but current is none"
    )
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={"x-max-length": integer(3)})


def test_policy_of_system_objects(connect: Connect, admin: Admin, make_vhost: Callable[[], str]) -> None:
    """§6.1: `amq.*` objects and exclusive queues match too."""
    vhost = make_vhost()
    admin.set_policy(vhost, "queues", "^amq\\.gen-", {"max-length": 3}, apply_to="queues")
    alternate = {"alternate-exchange": "amq.fanout"}
    admin.set_policy(vhost, "exchanges", "^amq\\.direct$", alternate, apply_to="exchanges")
    channel = connect(vhost=vhost).channel()
    queue = channel.declare(exclusive=True)
    assert kept(channel, queue) == 3
    channel.call(QueueBind, queue=queue, exchange="amq.fanout")
    assert is_routed(channel, "amq.direct")
    assert not is_routed(channel, "amq.topic")


# §6.2 Keys: numbers


MINIMA = [
    # argument, policy, operator policy → effective
    (5, 3, None, 3),
    (5, 6, None, 5),
    (5, 6, 2, 2),
    (2, 6, 5, 2),
    (None, 3, None, 3),
    (None, None, 2, 2),
    (None, 5, 2, 2),
    (None, 2, 5, 2),
    (4, None, 6, 4),
    (4, None, 2, 2),
    (5, 0, None, 0),
]


@pytest.mark.parametrize(("argument", "policy", "operator", "effective"), MINIMA)
def test_minimum_of_max_length(
    channel: Channel,
    set_policy: SetPolicy,
    set_operator_policy: SetPolicy,
    prefix: str,
    argument: int | None,
    policy: int | None,
    operator: int | None,
    effective: int,
) -> None:
    """§6.2 row max-length and the min rule example: argument, policy and operator policy."""
    if policy is not None:
        set_policy({"max-length": policy})
    if operator is not None:
        set_operator_policy({"max-length": operator})
    arguments = {} if argument is None else {"x-max-length": integer(argument)}
    assert kept(channel, channel.declare(prefix, exclusive=True, arguments=arguments)) == effective


@pytest.mark.parametrize(("argument", "policy", "operator", "effective"), MINIMA[:4])
def test_minimum_of_max_length_bytes(
    channel: Channel,
    set_policy: SetPolicy,
    set_operator_policy: SetPolicy,
    prefix: str,
    argument: int,
    policy: int,
    operator: int | None,
    effective: int,
) -> None:
    """§6.2 row max-length-bytes; the bodies have one byte each."""
    set_policy({"max-length-bytes": policy})
    if operator is not None:
        set_operator_policy({"max-length-bytes": operator})
    arguments = {"x-max-length-bytes": integer(argument)}
    assert kept(channel, channel.declare(prefix, exclusive=True, arguments=arguments)) == effective


SHORT_MS, LONG_MS = 50, 600_000


@pytest.mark.parametrize("key", ["message-ttl", "expires"])
@pytest.mark.parametrize("short", ["argument", "policy", "operator"])
def test_minimum_of_times(
    channel: Channel,
    set_policy: SetPolicy,
    set_operator_policy: SetPolicy,
    prefix: str,
    key: str,
    short: str,
) -> None:
    """§6.2 rows message-ttl and expires: whichever of the three is short takes effect."""
    times = dict.fromkeys(("argument", "policy", "operator"), LONG_MS) | {short: SHORT_MS}
    set_policy({key: times["policy"]})
    set_operator_policy({key: times["operator"]})
    queue = channel.declare(prefix, arguments={f"x-{key}": integer(times["argument"])})
    channel.publish("", queue, b"1")
    if key == "expires":
        wait_until(lambda: not is_routed(channel, "", queue), "the queue expires")
    else:
        wait_until(lambda: ready_count(channel, queue) == 0, "the message expires")


@pytest.mark.parametrize("policy", ["user", "operator"])
def test_expires_acts_at_once(
    channel: Channel, set_policy: SetPolicy, set_operator_policy: SetPolicy, prefix: str, policy: str
) -> None:
    """§6.2: expires acts on an existing queue."""
    queue = channel.declare(prefix)
    (set_policy if policy == "user" else set_operator_policy)({"expires": SHORT_MS})
    wait_until(lambda: not is_routed(channel, "", queue), "the queue expires")
    assert not queue_exists(channel, queue)


def test_message_ttl_acts_on_later_messages(channel: Channel, set_policy: SetPolicy, prefix: str) -> None:
    """§6.2: message-ttl via policy affects messages published afterwards only."""
    queue = channel.declare(prefix)
    for _ in range(4):
        channel.publish("", queue, b"old")
    wait_until(lambda: ready_count(channel, queue) == 4, "all are there")
    # The length tells when the policy has reached the queue.
    set_policy({"message-ttl": 1, "max-length": 3})
    wait_until(lambda: ready_count(channel, queue) == 3, "the policy trims")
    channel.publish("", queue, b"new")
    channel.sync()
    time.sleep(0.02)
    assert drain(channel, queue) == [b"old", b"old"]


def test_user_and_operator_policy_unite(
    channel: Channel, set_policy: SetPolicy, set_operator_policy: SetPolicy, prefix: str
) -> None:
    """§6.2: effective definition = union of keys."""
    set_policy({"overflow": "reject-publish"})
    set_operator_policy({"max-length": 2})
    queue = channel.declare(prefix, exclusive=True)
    fill(channel, queue)
    assert drain(channel, queue) == [b"0", b"1"]


# §6.2 Keys: strings


@pytest.mark.parametrize(
    ("argument", "policy", "left"),
    [
        (None, "reject-publish", [b"0", b"1"]),
        (None, "reject-publish-dlx", [b"0", b"1"]),
        (None, "drop-head", [b"6", b"7"]),
        ("drop-head", "reject-publish", [b"6", b"7"]),
        ("reject-publish", "drop-head", [b"0", b"1"]),
    ],
)
def test_overflow(
    channel: Channel, set_policy: SetPolicy, prefix: str, argument: str | None, policy: str, left: list[bytes]
) -> None:
    """§6.2 row overflow: the argument wins."""
    set_policy({"overflow": policy})
    arguments: Table = {"x-max-length": integer(2)}
    if argument is not None:
        arguments["x-overflow"] = longstr(argument)
    queue = channel.declare(prefix, exclusive=True, arguments=arguments)
    fill(channel, queue)
    assert drain(channel, queue) == left


def reject_one(channel: Channel, queue: str) -> None:
    """Publish a message and have it dead-lettered."""
    channel.publish("", queue, b"dead")
    content = channel.get(queue, no_ack=False)
    assert content
    channel.send(BasicReject, delivery_tag=content.method.delivery_tag, requeue=False)


@pytest.mark.parametrize(
    ("arguments", "policy", "target"),
    [
        ({}, {"dead-letter-exchange": ""}, "own"),
        ({}, {"dead-letter-exchange": "", "dead-letter-routing-key": "{policy}"}, "policy"),
        # The exchange of an argument and the key of a policy go together, and the other way round.
        ({"x-dead-letter-exchange": ""}, {"dead-letter-routing-key": "{policy}"}, "policy"),
        (
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "{argument}"},
            {"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "{policy}"},
            "argument",
        ),
        (
            {"x-dead-letter-exchange": ""},
            {"dead-letter-exchange": "missing exchange", "dead-letter-routing-key": "{policy}"},
            "policy",
        ),
    ],
)
def test_dead_letter_exchange_and_key(
    channel: Channel,
    set_policy: SetPolicy,
    prefix: str,
    arguments: dict[str, str],
    policy: dict[str, str],
    target: str,
) -> None:
    """§6.2 rows dead-letter-exchange and dead-letter-routing-key: the argument wins, each for itself."""
    targets = {each: channel.declare(exclusive=True) for each in ("argument", "policy")}
    set_policy({key: value.format(**targets) for key, value in policy.items()})
    fields = {key: longstr(value.format(**targets)) for key, value in arguments.items()}
    queue = channel.declare(prefix, exclusive=True, arguments=fields)
    reject_one(channel, queue)
    # Without a key the message comes back to its own queue: a rejection is no cycle (§5.5).
    assert channel.wait_get(targets.get(target, queue)).body == b"dead"


def test_dead_letter_exchange_of_policy_needs_no_permission(
    channel: Channel,
    make_user: Callable[..., str],
    connect: Connect,
    set_policy: SetPolicy,
    prefix: str,
) -> None:
    """§6.2: DLX by policy without a DLX permission check, at declare and at death."""
    target = channel.declare(exclusive=True)
    set_policy({"dead-letter-exchange": "", "dead-letter-routing-key": target}, f"^c-{prefix}$")
    limited = limited_channel(make_user, connect)
    queue = limited.declare(f"c-{prefix}")
    reject_one(channel, queue)
    assert channel.wait_get(target).body == b"dead"
    channel.call(QueueDelete, queue=queue)


@pytest.mark.parametrize(
    "definition",
    [
        {"queue-mode": "lazy"},
        {"queue-mode": "default"},
        {"queue-version": 1},
        {"queue-version": 2},
        {"queue-master-locator": "client-local"},
        {"queue-master-locator": "min-masters"},
        {"queue-master-locator": "random"},
        {"ha-mode": "all", "ha-sync-mode": "automatic"},
        {"max-in-memory-length": 1, "max-in-memory-bytes": 1},
    ],
)
def test_key_without_visible_effect(
    channel: Channel, set_policy: SetPolicy, prefix: str, definition: dict[str, Any]
) -> None:
    """§6.2 rows queue-mode, queue-version, queue-master-locator, ha-…, max-in-memory-…: it applies."""
    set_policy(definition | {"max-length": 3})
    queue = channel.declare(prefix)
    fill(channel, queue)
    assert drain(channel, queue) == [b"5", b"6", b"7"]


def test_delivery_limit_of_quorum_queue(channel: Channel, set_policy: SetPolicy, prefix: str) -> None:
    """§6.2 row delivery-limit: a policy of it applies to quorum queues."""
    set_policy({"delivery-limit": 1})
    queue = channel.declare(prefix, durable=True, arguments={"x-queue-type": longstr("quorum")})
    channel.publish("", queue, b"1")
    for _ in range(2):
        content = channel.wait_get(queue, no_ack=False)
        channel.send(BasicReject, delivery_tag=content.method.delivery_tag, requeue=True)
    wait_until(lambda: ready_count(channel, queue) == 0, "the message is dropped")
    channel.sync()
    assert channel.get(queue) is None
    channel.call(QueueDelete, queue=queue)


def test_delivery_limit_of_operator_policy(
    channel: Channel, set_policy: SetPolicy, set_operator_policy: SetPolicy, prefix: str
) -> None:
    """§6.2 row delivery-limit: merged with an operator policy by the minimum."""
    set_policy({"delivery-limit": 1000})
    set_operator_policy({"delivery-limit": 0})
    queue = channel.declare(prefix, durable=True, arguments={"x-queue-type": longstr("quorum")})
    channel.publish("", queue, b"1")
    content = channel.wait_get(queue, no_ack=False)
    channel.send(BasicReject, delivery_tag=content.method.delivery_tag, requeue=True)
    channel.sync()
    assert channel.get(queue) is None
    channel.call(QueueDelete, queue=queue)
