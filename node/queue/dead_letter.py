"""Dead-lettering: the copy of a message that leaves its queue for the dead-letter exchange.

The copy is a new message: same body, properties kept but for `expiration`, and an `x-death` header that says from
which queue it was dead-lettered, why and how often. A message that would come back to a queue in a cycle, without any
client having rejected it, is dropped there.
Source: amqp-behaviour §5.5.
"""

from typing import Final, NamedTuple, TypeAlias

from node.amqp.field_table import Field, Table, array, long, longstr, table, timestamp
from node.queue.content import decode_content, encode_content
from node.queue.run import Envelope

EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
"""Why a message was dead-lettered."""

NO_EXCHANGE: Final = "no-exchange"
NO_ROUTE: Final = "no-route"
REFUSED: Final = "refused"
CYCLE: Final = "cycle"
OUT_OF_REACH: Final = "out-of-reach"
"""Why no queue has a dead letter: its exchange does not exist or has no route for it, all queues refused it, it would
have come back to its queue in a cycle, or a queue could not be reached."""

_COUNT_MAX: Final = 2**63 - 1
"""The limit of a count in x-death: a client may claim any count, and ours must fit the wire."""

_REJECTED: Final = b"rejected"

_Place: TypeAlias = tuple[bytes | str, bytes | str]
"""The queue and the reason of a death: x-death has one entry for each pair."""


class Death(NamedTuple):
    """The facts about a message's dead-lettering that its queue gives.

    exchange, routing_key: where the copy goes; with the key None it keeps its keys.   time_s: since 1970.
    """

    vhost: str
    queue: str
    reason: str
    exchange: str
    routing_key: str | None
    time_s: int


def dead_envelope(death: Death, old: Envelope) -> Envelope:
    """Return the envelope of the copies. A dead-letter routing key stands for all keys; the body is in one frame."""
    has_key = death.routing_key is not None
    return Envelope(
        death.exchange,
        death.routing_key if death.routing_key is not None else old.routing_key,
        channel=old.channel,
        frame_max_bytes=0,
        persistent=old.persistent,
        priority=old.priority,
        cc=() if has_key else old.cc,
        bcc=() if has_key else old.bcc,
    )


def dead_copy(content: bytes, death: Death, old: Envelope) -> tuple[bytes, Table]:
    """Return the content of the dead-lettered copy, its body in one frame, and its headers.   old: of the message."""
    properties, body = decode_content(content)
    headers = dict(properties.headers or {})
    if death.routing_key is not None:
        headers.pop("CC", None)
    event: Table = {
        "count": long(1),
        "reason": longstr(death.reason),
        "queue": longstr(death.queue),
        "time": timestamp(death.time_s),
        "exchange": longstr(old.exchange),
        "routing-keys": array([longstr(key) for key in (old.routing_key, *old.cc)]),
    }
    if properties.expiration is not None:
        event["original-expiration"] = longstr(properties.expiration)
    known = headers.get("x-death")
    headers["x-death"] = array(_with_death(known, event))
    if known is None:
        headers["x-first-death-exchange"] = longstr(old.exchange)
        headers["x-first-death-queue"] = longstr(death.queue)
        headers["x-first-death-reason"] = longstr(death.reason)
    # RabbitMQ sorts the whole table, the client's entries too (§5.5, live).
    properties.headers = headers = _sorted(headers)
    properties.expiration = None
    return encode_content(properties, body, old.channel, 0), headers


def is_cycle(queue: str, headers: Table) -> bool:
    """True if a dead-lettered message has come round to `queue` without a rejection on the way."""
    name = queue.encode("utf-8", "surrogateescape")
    for entry in _entries(headers.get("x-death")):
        died_in, reason = _place(entry)
        if reason == _REJECTED:
            return False
        if died_in == name:
            return True
    return False


def _entries(deaths: Field | None) -> list[Table]:
    """Return the tables in an x-death header, newest first; none if it isn't an array."""
    if deaths is None or not isinstance(deaths.value, list):
        return []
    return [entry.value for entry in deaths.value if isinstance(entry.value, dict)]


def _place(entry: Table) -> _Place:
    """Return queue and reason of an x-death entry; values of other types, from a client, compare by their text."""
    queue, reason = (entry.get(name) for name in ("queue", "reason"))
    return _comparable(queue), _comparable(reason)


def _comparable(field: Field | None) -> bytes | str:
    value = None if field is None else field.value
    return value if isinstance(value, bytes) else repr(value)


def _with_death(known: Field | None, event: Table) -> list[Field]:
    """Return the deaths so far with one more: counted in the entry for its place if there is one, else in a new one.

    It comes first. Only the first entry of all has its fields in the order of `event`, later ones are sorted; and when
    there are several older ones each death turns them round (§5.5, live).
    """
    if known is None or known.tag != "A":
        return [table(event)]
    entries = _entries(known)
    groups: dict[_Place, list[Table]] = {}
    for entry in reversed(entries):
        groups.setdefault(_place(entry), []).append(entry)
    older = {place: _joined(group, len(entries)) for place, group in groups.items()}
    counted = older.pop(_place(event), None)
    if counted is not None:
        count = counted.get("count")
        known_count = count.value if count is not None and isinstance(count.value, int) else 0
        event = {**counted, "count": long(min(known_count + 1, _COUNT_MAX))}
    return [table(_sorted(event)), *map(table, older.values())]


def _joined(group: list[Table], entry_count: int) -> Table:
    """Return one entry for several of the same place: the newest; if its count is missing it is their number.

    A header with a single entry is taken as it is.
    """
    newest = group[-1]
    return newest if "count" in newest or entry_count == 1 else {"count": long(len(group)), **newest}


def _sorted(entries: Table) -> Table:
    return {
        name: entries[name]
        for name in sorted(entries, key=lambda name: name.encode("utf-8", "surrogateescape"))
    }
