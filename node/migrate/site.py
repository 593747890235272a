"""A broker, RabbitMQ or Fluffle, as its management HTTP API shows it at one moment.

`PATHS` says which answers a site is made of; fetching them is the caller's work.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from node.catalogue.records import Json
from node.migrate.answers import Row, count, inner, is_set, optional_count, rate, rows, text, texts
from node.migrate.clients import (
    CHANNEL_COLUMNS,
    CONNECTION_COLUMNS,
    CONSUMER_COLUMNS,
    Client,
    clients_of,
)
from node.migrate.queues import COLUMNS, Key, Queue, queue_of

_NODE_COLUMNS: Final = (
    "name",
    "running",
    "enabled_plugins",
    "mem_alarm",
    "disk_free_alarm",
    "disk_free",
    "disk_free_limit",
    "partitions",
)

PATHS: Final[dict[str, str]] = {
    "overview": "/overview",
    "nodes": f"/nodes?columns={','.join(_NODE_COLUMNS)}",
    "queues": f"/queues?columns={','.join(COLUMNS)}",
    "exchanges": "/exchanges?columns=name,vhost,type,messages_delayed",
    "connections": f"/connections?columns={','.join(CONNECTION_COLUMNS)}",
    "channels": f"/channels?columns={','.join(CHANNEL_COLUMNS)}",
    "consumers": f"/consumers?columns={','.join(CONSUMER_COLUMNS)}",
    "definitions": "/definitions",
    "shovels": "/shovels",
}
"""The answers that make a site, and their paths below /api."""

LIGHT: Final = ("overview", "nodes", "queues", "connections", "consumers", "shovels")
"""The answers that a look at the progress needs: no definitions, and not what each channel does."""

OPTIONAL: Final = frozenset({"shovels"})
"""A broker without the plug-in has no such path (404)."""


class SiteUnreadable(Exception):
    """The answers are not those of a broker's management HTTP API; the text is one line."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a site.   disk_left: bytes above the limit of the disk alarm; None if it is not known."""

    name: str
    is_running: bool
    plugins: frozenset[str]
    has_memory_alarm: bool = False
    has_disk_alarm: bool = False
    disk_left: int | None = None
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """An address for clients."""

    node: str
    protocol: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class ShovelStatus:
    """The state of a shovel: `running`, `starting` or `terminated`, with the reason."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A broker at one moment.

    delayed: how many messages wait in each delayed exchange.   shovels: by vhost and name; None if the broker does not
    tell, as its plug-in is missing.   definitions: as exported.
    """

    product: str
    version: str
    cluster_name: str = ""
    rates_mode: str = "basic"
    has_statistics: bool = True
    exchange_types: frozenset[str] = frozenset()
    nodes: tuple[Node, ...] = ()
    listeners: tuple[Listener, ...] = ()
    queues: Mapping[Key, Queue] = field(default_factory=dict)
    delayed: Mapping[Key, int] = field(default_factory=dict)
    clients: tuple[Client, ...] = ()
    shovels: Mapping[Key, ShovelStatus] | None = None
    definitions: Row = field(default_factory=dict)
    publish_rate: float = 0.0

    @property
    def is_fluffle(self) -> bool:
        """True if the broker is a Fluffle."""
        return self.product == "Fluffle"

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def plugins(self) -> frozenset[str]:
        """The plug-ins that are enabled on all running nodes."""
        running = [node.plugins for node in self.nodes if node.is_running]
        return frozenset.intersection(*running) if running else frozenset()

    @property
    def any_plugins(self) -> frozenset[str]:
        """The plug-ins that are enabled on some node."""
        return frozenset().union(*(node.plugins for node in self.nodes))

    def ports(self, *protocols: str) -> list[Listener]:
        """Return the listeners for these protocols."""
        return [each for each in self.listeners if each.protocol in protocols]


def site(answers: Mapping[str, Json]) -> Site:
    """Return the site of answers, by the names of `PATHS`. Raises: SiteUnreadable."""
    overview = answers.get("overview")
    if not isinstance(overview, dict) or not text(overview, "rabbitmq_version"):
        raise SiteUnreadable("the answer of /api/overview is not that of a RabbitMQ or a Fluffle")
    definitions = answers.get("definitions", {})
    if not isinstance(definitions, dict):
        raise SiteUnreadable("the answer of /api/definitions is no object")
    queues = {queue.key: queue for queue in map(queue_of, rows(answers.get("queues")))}
    stats = inner(overview, "message_stats")
    return Site(
        "Fluffle" if text(overview, "erlang_full_version").startswith("Fluffle") else "RabbitMQ",
        text(overview, "rabbitmq_version"),
        text(overview, "cluster_name"),
        text(overview, "rates_mode", "basic"),
        has_statistics=not is_set(overview, "disable_stats"),
        exchange_types=frozenset(text(row, "name") for row in rows(overview.get("exchange_types"))),
        nodes=tuple(map(_node, rows(answers.get("nodes")))),
        listeners=tuple(map(_listener, rows(overview.get("listeners")))),
        queues=queues,
        delayed=_delayed(answers.get("exchanges")),
        clients=clients_of(answers.get("connections"), answers.get("channels"), answers.get("consumers")),
        shovels=_shovels(answers.get("shovels")),
        definitions=definitions,
        publish_rate=rate(stats, "publish"),
    )


def _node(row: Row) -> Node:
    free, limit = optional_count(row, "disk_free"), count(row, "disk_free_limit")
    return Node(
        text(row, "name"),
        is_set(row, "running"),
        frozenset(texts(row.get("enabled_plugins"))),
        has_memory_alarm=is_set(row, "mem_alarm"),
        has_disk_alarm=is_set(row, "disk_free_alarm"),
        disk_left=None if free is None else max(0, free - limit),
        partitions=texts(row.get("partitions")),
    )


def _listener(row: Row) -> Listener:
    return Listener(text(row, "node"), text(row, "protocol"), text(row, "ip_address"), count(row, "port"))


def _delayed(answer: Json) -> dict[Key, int]:
    return {
        (text(row, "vhost"), text(row, "name")): count(row, "messages_delayed")
        for row in rows(answer)
        if count(row, "messages_delayed")
    }


def _shovels(answer: Json) -> dict[Key, ShovelStatus] | None:
    """Return the states of shovels; None unless the answer is a list."""
    if not isinstance(answer, list):
        return None
    return {
        (text(row, "vhost"), text(row, "name")): ShovelStatus(text(row, "state"), text(row, "reason"))
        for row in rows(answer)
    }
