"""Export a catalogue, or one of its vhosts, as a definitions document.

Left out are objects that no user declared or can declare again: exclusive queues, exchanges of the broker's own, the
queues of delayed exchanges, their implicit bindings and bindings to what is left out. Source: management §2.2.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from node.catalogue.catalogue import Catalogue
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.names import RESERVED_PREFIX
from node.catalogue.parameters import VHOST_LIMITS, VHOST_LIMITS_NAME
from node.catalogue.records import DEFAULT_EXCHANGE, Exchange, QueueRecord, Vhost
from node.definitions import rows
from node.definitions.reading import finish
from node.definitions.rows import Row
from node.definitions.users import user_row

STEP_ROWS: Final = 500
"""After so many rows the exporter yields, so that other tasks may run."""

OF_ONE_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The product and version that a document names as its maker."""

    version: str
    product_name: str
    product_version: str


def export(catalogue: Catalogue, stamp: Stamp, *, vhost: str | None = None, is_full: bool = False) -> Row:
    """Make the document at once: see `export_steps`."""
    return finish(export_steps(catalogue, stamp, vhost=vhost, is_full=is_full))


def export_steps(
    catalogue: Catalogue, stamp: Stamp, *, vhost: str | None = None, is_full: bool = False
) -> Generator[None, None, Row]:
    """Make the document; changes meanwhile may be in it or not.

    vhost: only what is in this one; None: everything.
    is_full: with types of queues, and with limits and metadata of all vhosts, as RabbitMQ's command line has it.
    Without, a vhost has metadata only if there are any.
    """
    found: Row = {"rabbit_version": stamp.version}
    if vhost is None:
        found |= {
            "rabbitmq_version": stamp.version,
            "product_name": stamp.product_name,
            "product_version": stamp.product_version,
        }
        found |= _of_all(catalogue, is_full=is_full)
    described = sorted(catalogue.vhosts(), key=lambda each: each.name)
    names = [each.name for each in described] if vhost is None else [vhost]
    sections: dict[str, list[Row]] = {section: [] for section in OF_ONE_VHOST}
    count = 0
    for name in names:
        for section, row in _of_vhost(catalogue, name, is_full=is_full):
            if vhost is not None and section in ("queues", "exchanges", "bindings"):
                del row["vhost"]
            sections[section].append(row)
            count += 1
            if count % STEP_ROWS == 0:
                yield
    found["parameters"] = list(sections.pop("parameters"))
    if vhost is None:
        found["global_parameters"] = [
            {"name": name, "value": value} for name, value in sorted(catalogue.global_parameters().items())
        ]
    found |= {section: list(of_section) for section, of_section in sections.items()}
    return found


def _of_all(catalogue: Catalogue, *, is_full: bool) -> Row:
    users = sorted(catalogue.users(), key=lambda each: each.name)
    vhosts = sorted(catalogue.vhosts(), key=lambda each: each.name)
    permissions = sorted(catalogue.permissions(), key=lambda each: (each.vhost, each.user))
    topics = sorted(catalogue.topic_permissions(), key=lambda each: (each.vhost, each.user, each.exchange))
    return {
        "users": [user_row(user) for user in users],
        "vhosts": [_vhost_row(catalogue, vhost, is_full=is_full) for vhost in vhosts],
        "permissions": [rows.permission_row(each) for each in permissions],
        "topic_permissions": [rows.topic_permission_row(each) for each in topics],
    }


def _vhost_row(catalogue: Catalogue, vhost: Vhost, *, is_full: bool) -> Row:
    metadata = rows.vhost_metadata(vhost)
    if is_full:
        limits = catalogue.parameter(vhost.name, VHOST_LIMITS, VHOST_LIMITS_NAME)
        pairs = limits.items() if isinstance(limits, dict) else ()
        return {
            "name": vhost.name,
            "limits": [[name, limit] for name, limit in pairs],
            "metadata": metadata,
        }
    if not any(metadata.values()):
        return {"name": vhost.name}
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "metadata": metadata,
    }


def _of_vhost(catalogue: Catalogue, vhost: str, *, is_full: bool) -> Iterator[tuple[str, Row]]:
    """Yield section and row of all that is in a vhost."""
    for row in rows.parameter_rows(catalogue, vhost):
        yield "parameters", row
    for policy in catalogue.policies(vhost):
        yield "policies", rows.policy_row(policy)
    queues = [each for each in sorted(catalogue.queues(vhost), key=_by_name) if _is_declared_queue(each)]
    for queue in queues:
        row = rows.queue_row(queue)
        yield "queues", {**row, "type": queue.type} if is_full else row
    exchanges = sorted(catalogue.exchanges(vhost), key=_by_name)
    for exchange in exchanges:
        if _is_declared(exchange):
            yield "exchanges", rows.exchange_row(exchange)
    known = {("queue", queue.name) for queue in queues}
    known |= {("exchange", exchange.name) for exchange in exchanges}
    for exchange in exchanges:
        if _is_protocols(exchange):
            continue
        for binding in tuple(catalogue.bindings_from(vhost, exchange.name)):
            if (binding.destination_kind, binding.destination) in known:
                yield "bindings", rows.binding_row(binding)


def _by_name(record: QueueRecord | Exchange) -> str:
    return record.name


def _is_declared_queue(queue: QueueRecord) -> bool:
    return queue.exclusive_owner is None and not is_exchange_queue(queue.name)


_NODES_PREFIX: Final = "amq.rabbitmq."
"""The beginning of the names of exchanges to which the node itself publishes, and to which clients bind."""


def _is_protocols(exchange: Exchange) -> bool:
    """True for an exchange that a plug-in's protocol has declared, and declares again where it is used."""
    name = exchange.name
    return exchange.internal and name.startswith(RESERVED_PREFIX) and not name.startswith(_NODES_PREFIX)


def _is_declared(exchange: Exchange) -> bool:
    return exchange.name != DEFAULT_EXCHANGE and not exchange.name.startswith(RESERVED_PREFIX)
