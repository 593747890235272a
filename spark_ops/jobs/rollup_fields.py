"""The fields of each kind of telemetry that a rollup has, and the names of its columns.

A rollup has one row for each subject, process and hour. Counters of one process only rise, so the rise of a counter is
its maximum minus its minimum, and restarts need no special treatment (spark §3.1). A queue's replica has one row for
each of its roles, since the cost of a master is not that of a mirror.

    hour                 s since 1970
    n, covered_ms        number of rows, and the time that they cover: the sum of interval_ms
    first_seq, last_seq, first_ts, last_ts
    X_min, X_max         of counters, of mono_ms and of gauges
    X_fit                exact sums for a regression of a gauge: n, x, y, xx, xy, yy; x in ms since the hour's begin
    X_spread             histogram of a gauge with 32 buckets, see `Spread`
    unsynced_ms          of a queue's replica: the time in which it was not synchronised
    first, last          other fields of the first and of the last row
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from spark_ops.telemetry.schema import LINK, NODE, QUEUE

RollupKind: TypeAlias = Literal["node", "queue", "link"]

BUCKETS: Final = 32


@dataclass(frozen=True, slots=True)
class Spread:
    """The buckets of a gauge: bucket 0 counts values below `unit`, bucket i below unit * 2**i, the last the rest."""

    unit: float


@dataclass(frozen=True, slots=True)
class RollupFields:
    """The columns of a rollup of a kind."""

    subject: tuple[str, ...]
    counters: tuple[str, ...]
    gauges: tuple[str, ...]
    fits: tuple[str, ...]
    spreads: Mapping[str, Spread]
    first: tuple[str, ...]
    last: tuple[str, ...]
    has_sync: bool = False
    extremes: tuple[str, ...] = field(init=False)
    """All fields whose minimum and maximum are kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extremes", ("mono_ms", *self.counters, *self.gauges))


def _totals(fields: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in fields if name.endswith("_total"))


ROLLUPS: Final[dict[RollupKind, RollupFields]] = {
    "queue": RollupFields(
        subject=("cluster", "vhost", "queue", "node", "boot_id", "role"),
        counters=(*_totals(QUEUE), "epoch"),
        gauges=("ready", "unacked", "mem_bytes", "disk_bytes", "consumers", "head_age_ms", "mirror_lag_ms"),
        fits=("ready", "mem_bytes", "disk_bytes"),
        spreads={"ready": Spread(1.0), "mirror_lag_ms": Spread(1.0)},
        first=("master_node", "confirm_us", "dead_letters_lost_by"),
        last=(
            *(
                "type",
                "exclusive",
                "policy",
                "want_mirrors",
                "master_node",
                "ring",
                "synced",
                "heir",
                "sync_state",
            ),
            *("mirror_lag_ops", "mirror_lag_ms", "mem_bytes", "disk_bytes", "ready", "unacked", "msg_bytes"),
            *("consumers", "publishers_on", "consumers_on", "confirm_us", "dead_letters_lost_by"),
        ),
        has_sync=True,
    ),
    "node": RollupFields(
        subject=("cluster", "node", "boot_id"),
        counters=_totals(NODE),
        gauges=("mem_rss", "disk_free", "fd_used", "sock_used", "conns", "loop_lag_ms_max", "view_id"),
        fits=("mem_rss", "disk_free", "fd_used", "sock_used"),
        spreads={"loop_lag_ms_max": Spread(0.1)},
        first=("loop_lag_us",),
        last=(
            *(
                "fd_used",
                "fd_limit",
                "sock_used",
                "sock_limit",
                "mem_rss",
                "mem_limit",
                "disk_free",
                "disk_limit",
            ),
            *(
                "cores",
                "capacity_hints",
                "zone",
                "labels",
                "maintenance",
                "version",
                "view_id",
                "alarms",
                "conns",
            ),
            *("queues_master", "queues_mirror", "loop_lag_us"),
        ),
    ),
    "link": RollupFields(
        subject=("cluster", "node", "from_node", "to_node", "boot_id"),
        counters=_totals(LINK),
        gauges=("send_q_bytes",),
        fits=("send_q_bytes",),
        spreads={},
        first=("rtt_us",),
        last=("rtt_us", "send_q_bytes", "last_error"),
    ),
}
