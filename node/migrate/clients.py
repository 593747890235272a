"""Connections of clients as a management HTTP API shows them, with what they do and what they need of a broker.

A connection publishes if one of its channels has published or waits for confirms, and consumes if it has a consumer.
One that does neither may do so later: it counts as one that publishes, so that it is not forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from node.catalogue.records import Json
from node.migrate.answers import Row, count, inner, is_set, rows, text
from node.migrate.queues import Key

MOVER: Final = "fluffle-migrate"
"""The user and the beginning of the names of shovels that carry messages for a migration."""

CONNECTION_COLUMNS: Final = (
    "name",
    "user",
    "vhost",
    "node",
    "protocol",
    "type",
    "ssl",
    "auth_mechanism",
    "client_properties",
    "user_provided_name",
    "peer_host",
    "peer_port",
)
CHANNEL_COLUMNS: Final = (
    "name",
    "connection_details",
    "confirm",
    "transactional",
    "consumer_count",
    "message_stats",
)
CONSUMER_COLUMNS: Final = ("queue", "channel_details", "exclusive", "arguments", "ack_required")

_AMQP_091: Final = ("AMQP 0-9-1", "AMQP 0-9", "AMQP 0-8", "Direct 0-9-1")


@dataclass(frozen=True, slots=True)
class Client:
    """A connection.

    product: the client library and its version.   is_mover: it is a shovel of the migration.   consumes: the queues.
    """

    name: str
    user: str
    vhost: str
    protocol: str
    product: str
    peer: str
    node: str = ""
    label: str = ""
    mechanism: str = ""
    has_tls: bool = False
    publishes: bool = False
    is_transactional: bool = False
    is_direct: bool = False
    is_mover: bool = False
    consumes: tuple[Key, ...] = ()

    @property
    def is_amqp_091(self) -> bool:
        """True if the connection speaks AMQP 0-9-1 or one of the versions that are close to it."""
        return self.protocol in _AMQP_091 or self.protocol.startswith("AMQP 0-")

    @property
    def role(self) -> str:
        """The work of the connection in one word."""
        if self.publishes and self.consumes:
            return "both"
        if self.consumes:
            return "consumes"
        return "publishes" if self.publishes else "idle"


def clients_of(connections: Json, channels: Json, consumers: Json) -> tuple[Client, ...]:
    """Return the clients in the answers of `/api/connections`, `/api/channels` and `/api/consumers`."""
    publishing: set[str] = set()
    transactional: set[str] = set()
    for row in rows(channels):
        name = text(inner(row, "connection_details"), "name")
        if count(inner(row, "message_stats"), "publish") or is_set(row, "confirm"):
            publishing.add(name)
        if is_set(row, "transactional"):
            transactional.add(name)
            publishing.add(name)
    consumed: dict[str, dict[Key, None]] = {}
    for row in rows(consumers):
        queue = inner(row, "queue")
        name = text(inner(row, "channel_details"), "connection_name")
        consumed.setdefault(name, {})[text(queue, "vhost"), text(queue, "name")] = None
    found = (
        _client(row, publishing, transactional, consumed)
        for row in rows(connections)
        if text(row, "name")  # a connection that is opening has none of its fields yet
    )
    return tuple(sorted(found, key=lambda each: (each.vhost, each.user, each.name)))


def _client(
    row: Row, publishing: Iterable[str], transactional: Iterable[str], consumed: dict[str, dict[Key, None]]
) -> Client:
    properties = inner(row, "client_properties")
    name, user = text(row, "name"), text(row, "user")
    label = text(row, "user_provided_name") or text(properties, "connection_name")
    product = " ".join(filter(None, (text(properties, "product"), text(properties, "version"))))
    is_direct = text(row, "type") == "direct"
    return Client(
        name,
        user,
        text(row, "vhost"),
        text(row, "protocol"),
        product or "unknown client",
        text(row, "peer_host"),
        node=text(row, "node"),
        label=label,
        mechanism=text(row, "auth_mechanism"),
        has_tls=is_set(row, "ssl"),
        publishes=name in publishing,
        is_transactional=name in transactional,
        is_direct=is_direct,
        is_mover=user == MOVER or label.startswith(f"Shovel {MOVER}"),
        consumes=tuple(consumed.get(name, ())),
    )


def foreign_consumers(clients: Iterable[Client]) -> dict[Key, int]:
    """Return how many connections that are no shovel of the migration consume from each queue."""
    found: dict[Key, int] = {}
    for client in clients:
        if not client.is_mover:
            for key in client.consumes:
                found[key] = found.get(key, 0) + 1
    return found
