"""Steps that the tests of dead letters share: how a message is made to die, and what x-death says of it."""

import time

from node.amqp.field_table import Field, Table, array, long, longstr
from node.amqp.methods import BasicReject, QueueBind
from tests.kit.amqp_client import Channel, Content

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


def observe(channel: Channel, exchange: str) -> str:
    """A queue that gets all of a fanout exchange."""
    queue = channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=exchange)
    return queue
