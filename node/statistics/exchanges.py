"""Exchanges: their metadata, and the publishes of this node's clients. Source: management §1.4."""

from collections.abc import Iterator
from typing import Any, Final

from node.amqp.plain import plain_table
from node.catalogue.catalogue import Catalogue
from node.catalogue.exchange_queues import exchange_queue
from node.catalogue.records import Exchange
from node.queue.delayed_queue import DelayedQueue
from node.queue.filter_queue import FilterQueue
from node.queue.history_queue import HistoryQueue
from node.queue.retained_queue import RetainedQueue
from node.statistics.message_stats import exchange_values, message_stats
from node.statistics.query import Query
from node.statistics.rows import Row
from node.statistics.watches import Watches

INTERNAL_USER: Final = "rmq-internal"
"""The creator of exchanges that exist from the beginning."""
UNKNOWN_USER: Final = "unknown"
"""The creator of other exchanges for which it isn't known: older versions did not keep it."""

_FACTS: Final = frozenset(
    {
        "name",
        "vhost",
        "type",
        "durable",
        "auto_delete",
        "internal",
        "arguments",
        "policy",
        "user_who_performed_action",
    }
)

_OWN_QUEUE: Final = frozenset({"messages_delayed", "message_deduplication", "messages_recent"})
"""The facts that only the node with the master of an exchange's own queue knows."""


def exchange_id(vhost: str, name: str) -> str:
    """Return an id that is unique in the cluster, and the same on each node."""
    return f"{vhost}\0{name}"


def exchange_rows(watches: Watches, query: Query) -> Iterator[Row]:
    """Yield one row for each exchange in the metadata."""
    broker = watches.broker
    wants_facts, wants_stats = query.wants_any(_FACTS), query.wants("message_stats")
    for record in _chosen(broker.catalogue, query):
        row: Row = {"id": exchange_id(record.vhost, record.name)}
        if wants_facts:
            row.update(exchange_facts(broker.catalogue, record))
        if wants_stats:
            _put_message_stats(watches, query, record, row)
        own = exchange_queue(record.type, record.name)
        if own is not None and query.wants_any(_OWN_QUEUE):
            _put_own_queue(watches, record, own, row)
        if query.is_detailed:
            row["incoming"] = []
            row["outgoing"] = []
        if query.fields is not None:
            row = {name: row[name] for name in row if name == "id" or name in query.fields}
        yield row


def _chosen(catalogue: Catalogue, query: Query) -> Iterator[Exchange]:
    if query.ids is not None:
        for id_ in query.ids:
            vhost, _, name = id_.partition("\0")
            record = catalogue.exchange(vhost, name) if query.is_in_scope(vhost) else None
            if record is not None:
                yield record
        return
    for each in list(catalogue.vhosts()):
        if query.is_in_scope(each.name):
            yield from list(catalogue.exchanges(each.name))


def declared_by(record: Exchange) -> str:
    """Return the user that declared an exchange."""
    is_ours = not record.name or record.name.startswith("amq.")
    return record.declared_by or (INTERNAL_USER if is_ours else UNKNOWN_USER)


def exchange_facts(catalogue: Catalogue, record: Exchange) -> Row:
    """Return the metadata of an exchange."""
    row: Row = {
        "name": record.name,
        "vhost": record.vhost,
        "type": record.type,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "internal": record.internal,
        "arguments": plain_table(record.arguments),
        "user_who_performed_action": declared_by(record),
    }
    effective = catalogue.effective_policy(record)
    if effective.policy is not None:
        row["policy"] = effective.policy
    return row


def _put_own_queue(watches: Watches, record: Exchange, own: str, row: Row) -> None:
    """Add the facts of the queue that belongs to an exchange, on the node that has its master."""
    live = watches.broker.vhosts.get(record.vhost)
    queue = None if live is None else live.queues.get(own)
    if isinstance(queue, DelayedQueue):
        row["messages_delayed"] = queue.backlog.count
    elif isinstance(queue, FilterQueue):
        row["message_deduplication"] = {"ids": queue.ids, "duplicates": queue.duplicates}
    elif isinstance(queue, HistoryQueue):
        row["messages_recent"] = queue.backlog.count
    elif isinstance(queue, RetainedQueue):
        row["messages_retained"] = queue.kept


def _put_message_stats(watches: Watches, query: Query, record: Exchange, row: dict[str, Any]) -> None:
    live = watches.broker.vhosts.get(record.vhost)
    counters = None if live is None else live.exchange_counters.get(record.name)
    if counters is None:
        return
    tracked = watches.exchanges.get(exchange_id(record.vhost, record.name))
    stats = message_stats(
        watches.exchanges, watches.exchange_tables, exchange_values(counters), tracked, query.ranges.msg_rates
    )
    if stats:
        row["message_stats"] = stats
