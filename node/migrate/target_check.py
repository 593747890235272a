"""Whether the broker to move to has room, and no objects of the same name that are others.

Fluffle's import leaves existing queues, exchanges and bindings as they are. Clients that declare them with RabbitMQ's
properties would be refused (406).
"""

from collections.abc import Collection, Iterator
from typing import Final

from node.catalogue.records import Json
from node.migrate.answers import Row, rows, text
from node.migrate.findings import Finding
from node.migrate.queues import Key, Queue
from node.migrate.site import Site

BYTES_PER_MESSAGE: Final = 1024
"""The space of a message on a disk beside its body, generously: properties, headers, index."""

_PROPERTIES: Final = ("durable", "auto_delete", "type", "internal")


def target_findings(source: Site, target: Site, moving: Collection[Queue]) -> Iterator[Finding]:
    """Yield what at the target stands in the way.   moving: the queues of the source that are to move."""
    if not target.is_fluffle:
        yield Finding("blocks", "target", target.cluster_name, f"is a {target.product}, not a Fluffle")
    for node in target.nodes:
        if not node.is_running:
            yield Finding("differs", "node", node.name, "of Fluffle does not run: queues get fewer copies")
        for has_alarm, noun in ((node.has_memory_alarm, "memory"), (node.has_disk_alarm, "disk")):
            if has_alarm:
                yield Finding(
                    "blocks", "node", node.name, f"of Fluffle has a {noun} alarm: it takes no messages"
                )
    yield from _room(target, moving)
    yield from _other_objects(source, target)
    for queue in moving:
        same = target.queues.get(queue.key)
        if same is not None and same.messages:
            yield Finding(
                "note", "queue", queue.name, f"has {same.messages:,} messages at Fluffle already", queue.vhost
            )


def _room(target: Site, moving: Collection[Queue]) -> Iterator[Finding]:
    """Yield a finding if persistent messages may not fit. Each node is taken to have a copy of all."""
    wanted = sum(queue.bytes + queue.messages * BYTES_PER_MESSAGE for queue in moving if queue.durable)
    for node in target.nodes:
        if node.disk_left is not None and wanted > node.disk_left:
            yield Finding(
                "blocks",
                "node",
                node.name,
                f"has {node.disk_left:,} bytes above its disk alarm's limit, and what moves needs up to {wanted:,}",
                advice="make room, or move fewer queues at a time (--queues)",
            )


def _other_objects(source: Site, target: Site) -> Iterator[Finding]:
    for section in ("queues", "exchanges"):
        there = {_key(row): row for row in rows(target.definitions.get(section))}
        for row in rows(source.definitions.get(section)):
            other = there.get(_key(row))
            differences = [] if other is None else list(_differences(row, other))
            if differences:
                yield Finding(
                    "blocks",
                    section.removesuffix("s"),
                    text(row, "name"),
                    f"is at Fluffle with another {' and '.join(differences)}: clients that declare it are refused",
                    text(row, "vhost"),
                    "delete it at Fluffle if it is empty",
                )


def _key(row: Row) -> Key:
    return text(row, "vhost"), text(row, "name")


def _differences(row: Row, other: Row) -> Iterator[str]:
    """Yield the names of properties and arguments that are not the same."""
    for name in _PROPERTIES:
        if name in row and name in other and row[name] != other[name]:
            yield name
    mine, theirs = _arguments(row), _arguments(other)
    yield from sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def _arguments(row: Row) -> dict[str, Json]:
    """Return the arguments; the type of a classic queue may be named or not."""
    found = row.get("arguments")
    arguments = dict(found) if isinstance(found, dict) else {}
    if arguments.get("x-queue-type") == "classic":
        del arguments["x-queue-type"]
    return arguments
