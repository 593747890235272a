"""One queue as a management HTTP API shows it: its declaration, its length, and its counters since some start.

Counters are of the queue's present master: they begin at 0 when it moves or its node restarts (`node.migrate.counts`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from node.catalogue.records import Json
from node.migrate.answers import Row, count, inner, is_set, rate, text

Key: TypeAlias = tuple[str, str]
"""Vhost and name."""

COLUMNS: Final = (
    "name",
    "vhost",
    "durable",
    "auto_delete",
    "exclusive",
    "owner_pid_details",
    "arguments",
    "type",
    "policy",
    "state",
    "node",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "messages_persistent",
    "message_bytes",
    "message_bytes_persistent",
    "consumers",
    "message_stats",
    "slave_nodes",
    "synchronised_slave_nodes",
)
"""The columns to ask for: `GET /api/queues?columns=…`."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue.

    messages: ready and unacknowledged.   publish, out: how many came in and went out since the counters began; None if
    the broker does not count.   redelivered: how many of the deliveries were not the first.   publish_rate, out_rate:
    in messages a second.   copies: nodes with mirrors, the master's not among them.
    """

    vhost: str
    name: str
    type: str = "classic"
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Mapping[str, Json] | None = None
    policy: str = ""
    state: str = "running"
    node: str = ""
    messages: int = 0
    unacknowledged: int = 0
    persistent: int = 0
    bytes: int = 0
    consumers: int = 0
    publish: int | None = None
    out: int | None = None
    redelivered: int = 0
    publish_rate: float = 0.0
    out_rate: float = 0.0
    copies: int = 0

    @property
    def key(self) -> Key:
        """The vhost and the name."""
        return self.vhost, self.name

    def argument(self, name: str) -> Json:
        """Return an argument of the declaration; None without it."""
        return (self.arguments or {}).get(name)


_OUT: Final = ("ack", "deliver_no_ack", "get_no_ack")
"""The counters of messages that have left a queue by clients: acknowledged, or delivered without."""


def queue_of(row: Row) -> Queue:
    """Return the queue in a row of `GET /api/queues`."""
    stats = inner(row, "message_stats")
    is_counted = "message_stats" in row
    arguments = dict(inner(row, "arguments"))
    asked = arguments.get("x-queue-type")
    mirrors = row.get("slave_nodes")
    return Queue(
        text(row, "vhost"),
        text(row, "name"),
        _type(text(row, "type") or (asked if isinstance(asked, str) else "")),
        durable=is_set(row, "durable"),
        auto_delete=is_set(row, "auto_delete"),
        exclusive=is_set(row, "exclusive") or bool(inner(row, "owner_pid_details")),
        arguments=arguments,
        policy=text(row, "policy"),
        state=text(row, "state", "running"),
        node=text(row, "node"),
        messages=count(row, "messages"),
        unacknowledged=count(row, "messages_unacknowledged"),
        persistent=count(row, "messages_persistent"),
        bytes=count(row, "message_bytes"),
        consumers=count(row, "consumers"),
        publish=count(stats, "publish") if is_counted else None,
        out=sum(count(stats, name) for name in _OUT) if is_counted else None,
        redelivered=count(stats, "redeliver"),
        publish_rate=rate(stats, "publish"),
        out_rate=sum(rate(stats, name) for name in _OUT),
        copies=len(mirrors) if isinstance(mirrors, list) else 0,
    )


def _type(shown: str) -> str:
    """Return the type as arguments have it: `rabbit_quorum_queue` and `quorum` are the same."""
    found = shown.removeprefix("rabbit_").removesuffix("_queue")
    return found or "classic"
