"""Dead-lettering: what a message becomes when it leaves its queue for the dead-letter exchange.

The copy is a new message: same body, properties kept but for `expiration`, and an `x-death` header that tells where it died, why and
how often. A message that would come round to a queue by itself, without any client having rejected it, is dropped there.
Source: amqp-behaviour §5.5.
"""

from typing import Final, TypeAlias

from node.amqp.field_table import Field, Table, array, long, longstr, table, timestamp
from node.amqp.frames import content_frames, split_content
from node.amqp.properties import Properties, content_header, decode_properties

_FLAGS_AT: Final = 12
"""Where the property flags stand in the payload of a content header."""

_REJECTED: Final = b"rejected"

_Place: TypeAlias = tuple[object, object]
"""Queue and reason of a death: one entry of x-death for each pair."""


def properties_of(content: bytes) -> tuple[Properties, bytes]:
    """The properties and the body of a content, decoded."""
    header, body = split_content(content)
    return decode_properties(header, _FLAGS_AT, len(header)), body


def dead_copy(
    content: bytes,
    *,
    queue: str,
    reason: str,
    exchange: str,
    routing_keys: list[str],
    time_s: int,
    drops_cc: bool,
    channel: int,
) -> tuple[bytes, Table]:
    """The content of the dead-lettered copy, its body in one frame, and its headers.

    exchange, routing_keys: as the message came into the queue; the key it was published with, then those of CC.
    drops_cc: the CC header goes when a dead-letter routing key replaces all keys.
    """
    properties, body = properties_of(content)
    headers = dict(properties.headers or {})
    if drops_cc:
        headers.pop("CC", None)
    event: Table = {
        "count": long(1),
        "reason": longstr(reason),
        "queue": longstr(queue),
        "time": timestamp(time_s),
        "exchange": longstr(exchange),
        "routing-keys": array([longstr(key) for key in routing_keys]),
    }
    if properties.expiration is not None:
        event["original-expiration"] = longstr(properties.expiration)
    known = headers.get("x-death")
    headers["x-death"] = array(_with_death(known, event))
    if known is None:
        headers["x-first-death-exchange"] = longstr(exchange)
        headers["x-first-death-queue"] = longstr(queue)
        headers["x-first-death-reason"] = longstr(reason)
    properties.headers = headers
    properties.expiration = None
    return content_frames(channel, content_header(len(body), properties), body, 0), headers


def is_cycle(queue: str, headers: Table) -> bool:
    """Whether a dead-lettered message has come round to `queue` without a rejection on the way."""
    name = queue.encode("utf-8", "surrogateescape")
    for entry in _entries(headers.get("x-death")):
        died_in, reason = _place(entry)
        if reason == _REJECTED:
            return False
        if died_in == name:
            return True
    return False


def _entries(deaths: Field | None) -> list[Table]:
    """The tables in an x-death header, newest first; none if it isn't an array."""
    if deaths is None or not isinstance(deaths.value, list):
        return []
    return [entry.value for entry in deaths.value if isinstance(entry.value, dict)]


def _place(entry: Table) -> _Place:
    queue, reason = entry.get("queue"), entry.get("reason")
    return (queue and queue.value, reason and reason.value)


def _with_death(known: Field | None, event: Table) -> list[Field]:
    """The deaths so far with one more in front: counted in its entry if there is one for the place, else new."""
    groups: dict[_Place, list[Table]] = {}
    for entry in _entries(known):
        groups.setdefault(_place(entry), []).append(entry)
    same = groups.pop(_place(event), None)
    if same is not None:
        counted = _joined(same)
        count = counted["count"].value
        counted["count"] = long(count + 1 if isinstance(count, int) else 1)
        event = {name: counted[name] for name in sorted(counted)}
    return [table(event), *(table(_joined(group)) for group in groups.values())]


def _joined(entries: list[Table]) -> Table:
    """One entry for several of the same place; where the count is missing it is their number."""
    first = entries[0]
    return dict(first) if "count" in first else {"count": long(len(entries)), **first}
