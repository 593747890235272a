"""The schema of telemetry: the fields of each kind of record and their types.

A row is a JSON object with the fields of the envelope and those of its kind; a missing field is null. The names of
counters end in `_total`; a counter starts at 0 with its process (`boot_id`) and only rises. Every other field is a
gauge or a state. Readers compute a rate as the difference of a counter over that of `mono_ms`, within one boot_id.

Later versions may add fields, which are null in older files. The meaning of a field never changes: another meaning
gets another name.
Source: spark §2.1-2.7.
"""

from typing import Final, Literal, TypeAlias, get_args

VERSION: Final = 1
"""The version of the rows that this code writes; rows have it in the field `v`."""

FieldType: TypeAlias = Literal[
    "int32", "int64", "double", "bool", "string", "strings", "counts", "texts", "histogram"
]
"""The types of fields.   strings: a list of strings.   counts: a map from string to int64.   texts: a map from string
to string.   histogram: a list of int64, see `HISTOGRAM_BUCKETS`."""

Kind: TypeAlias = Literal["node", "queue", "link", "event", "topology"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

HISTOGRAM_BUCKETS: Final = 32
"""Bucket i counts the values below 100 * 2**(i / 2) us that are in no lower bucket; the last bucket counts all greater
values. The limits go from 100 us to 3 s, each 2**0.5 times the one before."""


def bucket_limit_us(bucket: int) -> float:
    """Return the upper limit of a histogram's bucket in us; infinity for the last bucket."""
    return float("inf") if bucket >= HISTOGRAM_BUCKETS - 1 else 100.0 * 2.0 ** (bucket / 2)


ENVELOPE: Final[dict[str, FieldType]] = {
    "v": "int32",  # `VERSION`
    "kind": "string",
    "cluster": "string",
    "node": "string",
    "boot_id": "string",  # names the process
    "seq": "int64",  # counts the rows of a kind of this boot_id: (node, boot_id, kind, seq) is unique
    "ts": "int64",  # ms since 1970
    "mono_ms": "int64",  # ms since the start of the process, for rates
    "skew_ms": "int32",  # this node's clock minus the median of the members' clocks; null: unknown
    "skew_err_ms": "int32",
    "interval_ms": "int32",  # since the previous row of the same subject; null for its first row
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
    "clients_us_total": "int64",  # CPU time of the broker's thread for clients of this node, of all queues
    "cpu_wait_us_total": "int64",  # time in which a task of the node's cgroup, else of its host, waited for a CPU
    "cpu_steal_ms_total": "int64",  # CPU time of the host that its hypervisor gave to others, of all cores
    "loop_lag_ms_max": "double",  # maximum in the interval
    "loop_lag_us": "histogram",  # counters; one sample every 100 ms
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
    "segments_dropped_total": "int64",  # segments of telemetry dropped because no collector read them in time
    "plugins": "counts",  # numbers of plug-ins, by PLUGIN.COLUMN; null: no plug-in has any
}

QUEUE: Final[dict[str, FieldType]] = {
    "vhost": "string",
    "queue": "string",
    "qid": "int64",  # `queue_id`
    "type": "string",  # classic, quorum
    "durable": "bool",
    "exclusive": "bool",
    "policy": "string",
    "dead_letter_exchange": "string",  # of its arguments or its policy; null: none
    "want_mirrors": "int32",  # mirrors that the policy asks for beside the master; 0: unmirrored
    "fixed_nodes": "strings",  # the nodes for the copies, if the policy names nodes; null: any nodes
    "role": "string",  # master, mirror
    "master_node": "string",
    "epoch": "int64",  # rises when the master changes
    "ring": "strings",  # nodes with a copy, in order, from the master on
    "synced": "strings",  # the nodes of the ring that have all messages, including the master
    "heir": "string",  # the node that becomes master if the master dies; null: none
    "ring_pos": "int32",  # position of this replica
    "ring_size": "int32",
    "sync_state": "string",  # synced, syncing, unsynced
    "sync_progress": "double",  # 0 to 1
    "mirror_lag_ops": "int64",  # operations that the mirror lacks; in a master's row: that its mirrors lack
    "mirror_lag_ms": "int64",  # the time since the oldest of these operations was sent
    "mem_bytes": "int64",
    "disk_bytes": "int64",
    "cpu_us_total": "int64",  # CPU time of the broker's thread for this replica
    "client_us_total": "int64",  # CPU time of that thread for clients of this node that use the queue
    "disk_us_total": "int64",  # CPU time of the disk's thread for this replica
    # Only masters have the following fields.
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
    "dead_letters_lost_total": "int64",  # dead-lettered messages that no queue has
    "dead_letters_lost_by": "counts",  # the same by cause: `LOST_CAUSES`; null: none
    "expired_total": "int64",
    "dropped_total": "int64",
    "consumers": "int32",
    "consumer_util": "double",  # 0 to 1: the share of time in which a consumer could take a message
    "prefetch_sum": "int64",  # null: a consumer has no limit
    "head_age_ms": "int64",  # age of the oldest ready message
    "publishers_on": "counts",  # 1 for each node from which messages were seen to come in 5 min; null: unknown
    "consumers_on": "counts",  # number of consumers by node; null: there are none
    "confirm_us": "histogram",  # counters
}

LOST_CAUSES: Final = ("no-exchange", "no-route", "refused", "cycle")
"""Why no queue has a dead-lettered message: the dead-letter exchange is missing or has no route for it, all its queues
refused it, or it would have come back to its queue in a cycle."""

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
    "event": "string",  # one of `EVENTS`; readers count other events and ignore them
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
    "snapshot": "string",  # names the snapshot; its queues are spread over many rows
    "part": "int32",  # from 0
    "parts": "int32",
    "view_id": "int64",
    "topology_hash": "string",  # hash of the whole snapshot
    "document": "string",  # JSON, see `spark_ops.planning.topology`
}

FIELDS: Final[dict[Kind, dict[str, FieldType]]] = {
    "node": ENVELOPE | NODE,
    "queue": ENVELOPE | QUEUE,
    "link": ENVELOPE | LINK,
    "event": ENVELOPE | EVENT,
    "topology": ENVELOPE | TOPOLOGY,
}
"""All fields of each kind, in the order of columns."""

KEY: Final = ("node", "boot_id", "kind", "seq")
"""The fields that identify a row: duplicates have the same values in them."""
