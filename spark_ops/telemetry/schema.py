"""The schema of telemetry: the fields of each kind of record and their types.

A row is a JSON object. It has the fields of the envelope and those of its kind; a field that is missing is null.
Counters end in `_total` and rise from the start of a process (`boot_id`) on; everything else is a gauge, a state, or
of one moment. Readers compute rates from differences of counters and of `mono_ms`, of one boot_id.

Fields may be added, and are null in older files. A field never changes its meaning; a new meaning gets a new name.
Source: spark §2.1-2.7.
"""

from typing import Final, Literal, TypeAlias, get_args

VERSION: Final = 1
"""The version of the rows that this code writes, in their field `v`."""

FieldType: TypeAlias = Literal[
    "int32", "int64", "double", "bool", "string", "strings", "counts", "texts", "histogram"
]
"""The types of fields.   strings: a list.   counts, texts: maps from string to int64, to string.   histogram: a list
of int64, see `HISTOGRAM_BUCKETS`."""

Kind: TypeAlias = Literal["node", "queue", "link", "event", "topology"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

HISTOGRAM_BUCKETS: Final = 32
"""Bucket i counts values below 100 * 2**(i / 2) us that are in no lower bucket; the last one counts all above. The
limits go from 100 us to 3 s in steps of a half octave."""


def bucket_limit_us(bucket: int) -> float:
    """Return the upper limit of a histogram's bucket in us; infinite for the last one."""
    return float("inf") if bucket >= HISTOGRAM_BUCKETS - 1 else 100.0 * 2.0 ** (bucket / 2)


ENVELOPE: Final[dict[str, FieldType]] = {
    "v": "int32",  # `VERSION`
    "kind": "string",
    "cluster": "string",
    "node": "string",
    "boot_id": "string",  # of the process
    "seq": "int64",  # counts the rows of a kind of this boot_id: (node, boot_id, kind, seq) is unique
    "ts": "int64",  # ms since 1970
    "mono_ms": "int64",  # since the start of the process: rates go by it
    "skew_ms": "int32",  # our clock less the median of the members' clocks; null: not known
    "skew_err_ms": "int32",
    "interval_ms": "int32",  # since the row of the same subject before; null for the first one
}

NODE: Final[dict[str, FieldType]] = {
    "fd_used": "int64",
    "fd_limit": "int64",
    "sock_used": "int64",
    "sock_limit": "int64",
    "mem_rss": "int64",
    "mem_limit": "int64",  # the watermark in bytes
    "mem_by": "counts",
    "disk_free": "int64",
    "disk_limit": "int64",
    "disk_read_bytes_total": "int64",
    "disk_write_bytes_total": "int64",
    "fsync_count_total": "int64",
    "fsync_us_total": "int64",
    "cpu_user_ms_total": "int64",
    "cpu_sys_ms_total": "int64",
    "loop_lag_ms_max": "double",  # over the interval
    "loop_lag_us": "histogram",  # counters, of one sample every 100 ms
    "gc_pause_ms_total": "double",
    "gc_count_total": "int64",
    "alarms": "strings",  # memory, disk, fd
    "blocked_conns": "int32",
    "conns": "int32",
    "channels": "int32",
    "conns_opened_total": "int64",
    "conns_closed_total": "int64",
    "queues_master": "int32",
    "queues_mirror": "int32",
    "uptime_ms": "int64",
    "view_id": "int64",  # rises with each change of the members that are up
    "view_members": "strings",
    "zone": "string",
    "labels": "texts",
    "cores": "int32",
    "capacity_hints": "counts",
    "maintenance": "bool",
    "version": "string",
    "segments_dropped_total": "int64",  # of telemetry, which no collector took in time
}

QUEUE: Final[dict[str, FieldType]] = {
    "vhost": "string",
    "queue": "string",
    "qid": "int64",  # `queue_id`
    "type": "string",  # classic, quorum
    "durable": "bool",
    "exclusive": "bool",
    "policy": "string",
    "want_mirrors": "int32",  # mirrors that the policy asks for beside the master; 0: unmirrored
    "fixed_nodes": "strings",  # where the policy wants the copies, if it names nodes; null: anywhere
    "role": "string",  # master, mirror
    "master_node": "string",
    "epoch": "int64",  # rises when the master changes
    "ring": "strings",  # nodes with a copy, in order, from the master on
    "synced": "strings",  # the nodes of the ring with all messages, the master included
    "heir": "string",  # the node that becomes master if the master dies; null: none
    "ring_pos": "int32",  # of this replica
    "ring_size": "int32",
    "sync_state": "string",  # synced, syncing, unsynced
    "sync_progress": "double",  # 0 to 1
    "mirror_lag_ops": "int64",  # of a mirror: operations that it lacks; of a master: those that its mirrors lack
    "mirror_lag_ms": "int64",  # for how long the oldest of these is on its way
    "mem_bytes": "int64",
    "disk_bytes": "int64",
    "cpu_us_total": "int64",  # spent on this replica by the broker's thread
    # Only masters have those that follow.
    "ready": "int64",
    "unacked": "int64",
    "msg_bytes": "int64",
    "pub_total": "int64",
    "pub_bytes_total": "int64",
    "dlv_total": "int64",
    "dlv_bytes_total": "int64",
    "ack_total": "int64",
    "redeliver_total": "int64",
    "get_total": "int64",
    "dead_lettered_total": "int64",
    "expired_total": "int64",
    "dropped_total": "int64",
    "consumers": "int32",
    "consumer_util": "double",  # 0 to 1: the share of time in which a consumer could take a message
    "prefetch_sum": "int64",  # null: a consumer without limit
    "head_age_ms": "int64",  # of the oldest ready message
    "publishers_on": "counts",  # clients by node; null: not known
    "consumers_on": "counts",
    "confirm_us": "histogram",  # counters
}

LINK: Final[dict[str, FieldType]] = {
    "from_node": "string",
    "to_node": "string",
    "rtt_us": "histogram",  # counters
    "batches_total": "int64",
    "batch_msgs_total": "int64",
    "batch_bytes_total": "int64",
    "send_q_bytes": "int64",
    "reconnects_total": "int64",
    "backpressure_ms_total": "int64",
    "last_error": "string",
}

EVENT: Final[dict[str, FieldType]] = {
    "event_id": "string",
    "event": "string",  # one of `EVENTS`; readers count others and go on
    "vhost": "string",
    "queue": "string",
    "from_node": "string",
    "to_node": "string",
    "epoch_before": "int64",
    "epoch_after": "int64",
    "cause": "string",  # crash, operator, policy, plan:<id>:<step>
    "unsynced_promotion": "bool",
    "duration_ms": "int64",
    "detail": "texts",
}

EVENTS: Final = (
    "failover",
    "promotion",
    "view_change",
    "partition_suspected",
    "partition_healed",
    "alarm_set",
    "alarm_clear",
    "sync_start",
    "sync_done",
    "sync_abort",
    "conn_churn_burst",
    "plan_step_start",
    "plan_step_done",
    "plan_step_failed",
    "node_start",
    "node_stop",
    "clock_step",
)

TOPOLOGY: Final[dict[str, FieldType]] = {
    "snapshot": "string",  # names the snapshot: one is many rows, each with some of the queues
    "part": "int32",  # from 0
    "parts": "int32",
    "view_id": "int64",
    "topology_hash": "string",  # of the whole snapshot
    "document": "string",  # JSON, see `spark_ops.planning.topology`
}

FIELDS: Final[dict[Kind, dict[str, FieldType]]] = {
    "node": ENVELOPE | NODE,
    "queue": ENVELOPE | QUEUE,
    "link": ENVELOPE | LINK,
    "event": ENVELOPE | EVENT,
    "topology": ENVELOPE | TOPOLOGY,
}
"""All fields of a kind, in the order of columns."""

KEY: Final = ("node", "boot_id", "kind", "seq")
"""The fields that identify a row: a row that comes twice has the same values in them."""
