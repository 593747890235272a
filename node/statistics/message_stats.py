"""The counters in `message_stats`, by kind of object, and when they are shown.

RabbitMQ keeps the counters of publishes and of deliveries in tables of their own, so those of a table appear
together, once any of them has moved.
Source: management §1.12; a live RabbitMQ 3.10.8.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from node.statistics.query import Range
from node.statistics.series import Tracked, Watch

DELIVERIES: Final = (
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)
PUBLISHES: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")
DISK: Final = ("disk_reads", "disk_writes")
DELIVER_GET: Final = "deliver_get"
DELIVER_GET_PARTS: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")

CHANNEL: Final = (*PUBLISHES, *DELIVERIES)
QUEUE: Final = ("publish", *DELIVERIES, *DISK)
EXCHANGE: Final = ("publish_in", "publish_out")

channel_values: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*CHANNEL)
queue_values: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*QUEUE)
exchange_values: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*EXCHANGE)
"""These three getters return the values of counters in the order of `CHANNEL`, `QUEUE` and `EXCHANGE`."""


class Shown(NamedTuple):
    """Counters that appear together.   names: as shown.   columns: for each, which of an object's values make it up."""

    names: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]
    all_columns: tuple[int, ...]


def shown(watch: Watch, *tables: Sequence[str]) -> tuple[Shown, ...]:
    """Return how the counters of a watch's objects appear."""
    found = []
    for table in tables:
        names = (*table, DELIVER_GET) if "deliver" in table else tuple(table)
        columns = tuple(watch.columns[name] for name in names)
        found.append(Shown(names, columns, tuple(watch.columns[name][0] for name in table)))
    return tuple(found)


def message_stats(
    watch: Watch,
    tables: Sequence[Shown],
    values: Sequence[int],
    tracked: Tracked | None,
    range_: Range | None,
) -> dict[str, Any]:
    """Return the object `message_stats`, {} if no counter has ever moved.   values: now."""
    found: dict[str, Any] = {}
    for table in tables:
        if not any(values[index] for index in table.all_columns):
            continue
        for name, columns in zip(table.names, table.columns, strict=True):
            found[name] = sum(values[index] for index in columns)
            if watch.is_on:
                found[f"{name}_details"] = watch.details(tracked, columns, range_)
    return found
