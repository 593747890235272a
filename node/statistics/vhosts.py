"""Vhosts: their metadata, and this node's statistics of them. Source: management §1.9."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from node.catalogue.records import Vhost
from node.statistics.message_stats import message_stats
from node.statistics.query import Query, Range
from node.statistics.rows import Row
from node.statistics.series import Tracked, Watch
from node.statistics.watches import ALL_LENGTHS, OCTETS, Watches

NO_QUEUE_TYPE: Final = "undefined"
"""The value of `default_queue_type` where there is none."""


def vhost_rows(watches: Watches, query: Query) -> Iterator[Row]:
    """Yield one row for each vhost in the metadata. Its id is its name."""
    broker = watches.broker
    for record in list(broker.catalogue.vhosts()):
        if not query.is_in_scope(record.name) or (query.ids is not None and record.name not in query.ids):
            continue
        row: Row = {"id": record.name, **vhost_facts(record)}
        row["cluster_state"] = {broker.settings.node_name: "running"}
        _put_statistics(watches, query, record.name, row)
        if query.fields is not None:
            row = {name: row[name] for name in row if name == "id" or name in query.fields}
        yield row


def vhost_facts(record: Vhost) -> Row:
    """Return the metadata of a vhost."""
    tags = list(record.tags)
    return {
        "name": record.name,
        "description": record.description,
        "tags": [*tags],
        "default_queue_type": record.default_queue_type or NO_QUEUE_TYPE,
        "tracing": record.metadata.get("tracing") is True,
        "metadata": {"description": record.description, "tags": [*tags]},
    }


def _put_statistics(watches: Watches, query: Query, name: str, row: dict[str, Any]) -> None:
    """Add the values of the last tick; nothing before the first one."""
    watch, tracked = watches.vhosts, watches.vhosts.get(name)
    if tracked is None:
        return
    put_sums(row, watch, tracked, ALL_LENGTHS, query.ranges.lengths, watches.lengths_since_ms)
    if any(tracked.values[index] for octets in OCTETS for index in watch.columns[octets]):
        put_sums(row, watch, tracked, OCTETS, query.ranges.data_rates)
    stats = message_stats(watch, watches.vhost_tables, tracked.values, tracked, query.ranges.msg_rates)
    if stats:
        row["message_stats"] = stats


def put_sums(
    row: dict[str, Any],
    watch: Watch,
    tracked: Tracked,
    names: Sequence[str],
    range_: Range | None,
    known_since_ms: int = 0,
) -> None:
    """Add some values with their `X_details`.   known_since_ms: as for `Watch.details`."""
    for name in names:
        columns = watch.columns[name]
        row[name] = sum(tracked.values[index] for index in columns)
        row[f"{name}_details"] = watch.details(tracked, columns, range_, known_since_ms)
