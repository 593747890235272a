"""The metrics of nodes, queues, channels and connections, by family: their names and their values.

Names, types and families are RabbitMQ 3.10.8's, `fluffle_…` are our own. Pure. Source: management §5.1.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from node.client.channel import Channel
from node.client.connection import Connection
from node.management.exposition import Metric
from node.queue.queue import Queue

Number = int | float
RowOf = Mapping[str, Any]

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
EXCHANGE_FAMILY: Final = "exchange_metrics"


class OfQueue(NamedTuple):
    """A metric of a queue.

    field: of its row of statistics; or `value` of the queue itself. A queue that has neither now has no row.
    """

    metric: Metric
    field: str = ""
    value: Callable[[Queue], Number] | None = None
    is_summed: bool = True


class OfChannel(NamedTuple):
    """A metric of an open channel.   counter: its name among the channel's counters, if it is one."""

    metric: Metric
    value: Callable[[Channel], Number]
    counter: str = ""


class OfConnection(NamedTuple):
    """A metric of an open connection."""

    metric: Metric
    value: Callable[[Connection], Number]


class OfNode(NamedTuple):
    """A metric of a node.   field: of `node_facts`; its unit is `scale` of the metric's."""

    metric: Metric
    field: str
    scale: float = 1


# --- node ---

CHURN: Final = (
    OfNode(Metric("connections_opened_total", COUNTER, "Connections opened"), "connection_created"),
    OfNode(Metric("connections_closed_total", COUNTER, "Connections closed"), "connection_closed"),
    OfNode(Metric("channels_opened_total", COUNTER, "Channels opened"), "channel_created"),
    OfNode(Metric("channels_closed_total", COUNTER, "Channels closed"), "channel_closed"),
    OfNode(
        Metric("queues_declared_total", COUNTER, "Declarations of queues, whether or not the queue existed"),
        "queue_declared",
    ),
    OfNode(Metric("queues_created_total", COUNTER, "Queues created"), "queue_created"),
    OfNode(Metric("queues_deleted_total", COUNTER, "Queues deleted"), "queue_deleted"),
)
NODE_COARSE: Final = (
    OfNode(Metric("process_open_fds", GAUGE, "Open files and sockets"), "fd_used"),
    OfNode(Metric("process_open_tcp_sockets", GAUGE, "Open sockets of clients"), "sockets_used"),
    OfNode(Metric("process_resident_memory_bytes", GAUGE, "Resident memory"), "mem_used"),
    OfNode(Metric("disk_space_available_bytes", GAUGE, "Free disk space"), "disk_free"),
    OfNode(
        Metric(
            "erlang_processes_used", GAUGE, "Connections, channels and queues, in place of Erlang processes"
        ),
        "proc_used",
    ),
    OfNode(Metric("erlang_gc_runs_total", COUNTER, "Runs of Python's garbage collector"), "gc_num"),
    OfNode(
        Metric("erlang_gc_reclaimed_bytes_total", COUNTER, "Always 0: Python does not report it"),
        "gc_bytes_reclaimed",
    ),
    OfNode(
        Metric("erlang_scheduler_context_switches_total", COUNTER, "Context switches of the process"),
        "context_switches",
    ),
)
NODE: Final = (
    OfNode(Metric("process_max_fds", GAUGE, "Limit of open files and sockets"), "fd_total"),
    OfNode(Metric("process_max_tcp_sockets", GAUGE, "Limit of open sockets"), "sockets_total"),
    OfNode(
        Metric("resident_memory_limit_bytes", GAUGE, "Memory above which publishers are blocked"), "mem_limit"
    ),
    OfNode(
        Metric("disk_space_available_limit_bytes", GAUGE, "Free space below which publishers are blocked"),
        "disk_free_limit",
    ),
    OfNode(
        Metric("erlang_processes_limit", GAUGE, "Erlang's default limit of processes, without effect"),
        "proc_total",
    ),
    OfNode(
        Metric(
            "erlang_scheduler_run_queue",
            GAUGE,
            "Always 0: there are no Erlang schedulers",
        ),
        "run_queue",
    ),
    OfNode(
        Metric("erlang_net_ticktime_seconds", GAUGE, "Seconds of silence after which a node counts as down"),
        "net_ticktime",
    ),
    OfNode(Metric("erlang_uptime_seconds", GAUGE, "Seconds since the node started"), "uptime", 1e-3),
)
PERSISTER: Final = (
    OfNode(Metric("io_read_ops_total", COUNTER, "Reads of files with messages"), "io_read_count"),
    OfNode(Metric("io_read_bytes_total", COUNTER, "Bytes read from files with messages"), "io_read_bytes"),
    OfNode(Metric("io_write_ops_total", COUNTER, "Writes to files with messages"), "io_write_count"),
    OfNode(Metric("io_write_bytes_total", COUNTER, "Bytes written to files with messages"), "io_write_bytes"),
    OfNode(Metric("io_sync_ops_total", COUNTER, "Syncs of files and directories"), "io_sync_count"),
    OfNode(Metric("io_seek_ops_total", COUNTER, "Always 0: nothing seeks"), "io_seek_count"),
    OfNode(Metric("io_reopen_ops_total", COUNTER, "Always 0: files stay open"), "io_reopen_count"),
    OfNode(Metric("schema_db_ram_tx_total", COUNTER, "Changes of metadata"), "mnesia_ram_tx_count"),
    OfNode(Metric("schema_db_disk_tx_total", COUNTER, "Changes of metadata"), "mnesia_disk_tx_count"),
    OfNode(
        Metric("msg_store_read_total", COUNTER, "Contents read from the message store"),
        "msg_store_read_count",
    ),
    OfNode(
        Metric("msg_store_write_total", COUNTER, "Contents written to the message store"),
        "msg_store_write_count",
    ),
    OfNode(
        Metric("queue_index_read_ops_total", COUNTER, "Segments of queue indexes read"),
        "queue_index_read_count",
    ),
    OfNode(
        Metric("queue_index_write_ops_total", COUNTER, "Entries written to the journal"),
        "queue_index_write_count",
    ),
    OfNode(Metric("io_read_time_seconds_total", COUNTER, "Time for reads"), "io_read_time"),
    OfNode(Metric("io_write_time_seconds_total", COUNTER, "Time for writes"), "io_write_time"),
    OfNode(Metric("io_sync_time_seconds_total", COUNTER, "Time for syncs"), "io_sync_time"),
    OfNode(Metric("io_seek_time_seconds_total", COUNTER, "Always 0: nothing seeks"), "io_seek_time"),
)
RAFT: Final = (
    Metric("raft_term_total", COUNTER, "Always 0: queues do not use Raft here"),
    Metric("raft_log_snapshot_index", GAUGE, "Always 0"),
    Metric("raft_log_last_applied_index", GAUGE, "Always 0"),
    Metric("raft_log_commit_index", GAUGE, "Always 0"),
    Metric("raft_log_last_written_index", GAUGE, "Always 0"),
    Metric("raft_entry_commit_latency_seconds", GAUGE, "Always 0"),
)
AUTH: Final = (
    (Metric("auth_attempts_total", COUNTER, "Attempts to log in"), "attempts"),
    (Metric("auth_attempts_succeeded_total", COUNTER, "Logins that succeeded"), "succeeded"),
    (Metric("auth_attempts_failed_total", COUNTER, "Logins that failed"), "failed"),
)
AUTH_DETAILED: Final = (
    Metric("auth_attempts_detailed_total", COUNTER, "Attempts to log in by source, which are not counted"),
    Metric("auth_attempts_detailed_succeeded_total", COUNTER, "Logins by source that succeeded"),
    Metric("auth_attempts_detailed_failed_total", COUNTER, "Logins by source that failed"),
)

# --- queues ---

QUEUE_COARSE: Final = (
    OfQueue(Metric("queue_messages_ready", GAUGE, "Messages that are ready"), "messages_ready"),
    OfQueue(
        Metric("queue_messages_unacked", GAUGE, "Messages delivered and not acknowledged"),
        "messages_unacknowledged",
    ),
    OfQueue(Metric("queue_messages", GAUGE, "Messages that are ready or not acknowledged"), "messages"),
    OfQueue(Metric("queue_process_reductions_total", COUNTER, "Always 0"), "reductions"),
)
QUEUE_CONSUMERS: Final = OfQueue(Metric("queue_consumers", GAUGE, "Consumers of a queue"), "consumers")
QUEUE: Final = (
    QUEUE_CONSUMERS,
    OfQueue(
        Metric("queue_consumer_capacity", GAUGE, "Part of the time in which consumers can take messages"),
        "consumer_capacity",
    ),
    OfQueue(
        Metric("queue_consumer_utilisation", GAUGE, "The same value as queue_consumer_capacity"),
        "consumer_utilisation",
    ),
    OfQueue(Metric("queue_process_memory_bytes", GAUGE, "Memory of a queue"), "memory"),
    OfQueue(Metric("queue_messages_ram", GAUGE, "Messages in memory"), "messages_ram"),
    OfQueue(Metric("queue_messages_ram_bytes", GAUGE, "Size of messages in memory"), "message_bytes_ram"),
    OfQueue(Metric("queue_messages_ready_ram", GAUGE, "Ready messages in memory"), "messages_ready_ram"),
    OfQueue(
        Metric("queue_messages_unacked_ram", GAUGE, "Messages in memory that are not acknowledged"),
        "messages_unacknowledged_ram",
    ),
    OfQueue(Metric("queue_messages_persistent", GAUGE, "Persistent messages"), "messages_persistent"),
    OfQueue(
        Metric("queue_messages_persistent_bytes", GAUGE, "Size of persistent messages"),
        "message_bytes_persistent",
    ),
    OfQueue(Metric("queue_messages_bytes", GAUGE, "Size of all messages"), "message_bytes"),
    OfQueue(Metric("queue_messages_ready_bytes", GAUGE, "Size of ready messages"), "message_bytes_ready"),
    OfQueue(
        Metric("queue_messages_unacked_bytes", GAUGE, "Size of messages that are not acknowledged"),
        "message_bytes_unacknowledged",
    ),
    OfQueue(Metric("queue_messages_paged_out", GAUGE, "Messages on disk only"), "messages_paged_out"),
    OfQueue(
        Metric("queue_messages_paged_out_bytes", GAUGE, "Size of messages on disk only"),
        "message_bytes_paged_out",
    ),
    OfQueue(
        Metric("queue_head_message_timestamp", GAUGE, "The property timestamp of the first message"),
        "head_message_timestamp",
        is_summed=False,
    ),
    OfQueue(
        Metric("queue_disk_reads_total", COUNTER, "Messages read from disk"),
        value=lambda queue: queue.counters.disk_reads,
    ),
    OfQueue(
        Metric("queue_disk_writes_total", COUNTER, "Messages written to disk"),
        value=lambda queue: queue.counters.disk_writes,
    ),
)
QUEUE_PUBLISHED: Final = (
    OfQueue(
        Metric("queue_messages_published_total", COUNTER, "Messages published to a queue"),
        value=lambda queue: queue.counters.publish,
    ),
)


def _delivered(name: str, text: str, *fields: str) -> OfQueue:
    """Make the metric of one of a queue's own counters of deliveries, which RabbitMQ has from 4.0 on."""
    return OfQueue(
        Metric(name, COUNTER, text), value=lambda queue: sum(getattr(queue.counters, each) for each in fields)
    )


QUEUE_DELIVERED: Final = (
    _delivered("queue_get_ack_total", "Messages of a queue returned by basic.get, to be acknowledged", "get"),
    _delivered(
        "queue_get_total", "Messages of a queue returned by basic.get without acknowledgement", "get_no_ack"
    ),
    _delivered("queue_get_empty_total", "Calls of basic.get that found a queue empty", "get_empty"),
    _delivered(
        "queue_messages_delivered_ack_total",
        "Messages of a queue delivered to consumers, to be acknowledged",
        "deliver",
    ),
    _delivered(
        "queue_messages_delivered_total",
        "Messages of a queue delivered to consumers without acknowledgement",
        "deliver_no_ack",
    ),
    _delivered(
        "queue_messages_redelivered_total",
        "Messages of a queue delivered again",
        "redeliver",
    ),
    _delivered("queue_messages_acked_total", "Messages of a queue acknowledged", "ack"),
)
EXCHANGE_PUBLISHED: Final = Metric(
    "exchange_messages_published_total", COUNTER, "Messages published to an exchange"
)
"""The metric of the family `exchange_metrics`, which RabbitMQ has from 4.0 on."""

# --- channels ---

CHANNEL: Final = (
    OfChannel(Metric("channel_consumers", GAUGE, "Consumers of a channel"), lambda each: len(each.consumers)),
    OfChannel(
        Metric("channel_messages_unacked", GAUGE, "Messages that await acknowledgement"),
        lambda each: each.unacked.count,
    ),
    OfChannel(
        Metric("channel_messages_unconfirmed", GAUGE, "Publishes that await a confirm"),
        lambda each: 0 if each.confirms is None else each.confirms.outstanding,
    ),
    OfChannel(
        Metric("channel_messages_uncommitted", GAUGE, "Publishes of an open transaction"),
        lambda each: 0 if each.transaction is None else each.transaction.publish_count,
    ),
    OfChannel(
        Metric("channel_acks_uncommitted", GAUGE, "Acknowledgements of an open transaction"),
        lambda each: 0 if each.transaction is None else each.transaction.settled_count,
    ),
    OfChannel(
        Metric("consumer_prefetch", GAUGE, "Prefetch limit of new consumers of the channel"),
        lambda each: each.prefetch,
    ),
    OfChannel(
        Metric("channel_prefetch", GAUGE, "Prefetch limit of the whole channel"),
        lambda each: each.prefetch_limit,
    ),
)


def _counted(name: str, text: str, counter: str) -> OfChannel:
    """Make the metric of a channel's counter, which it also has by exchange or queue while that is asked for."""
    return OfChannel(
        Metric(name, COUNTER, text), lambda channel: int(getattr(channel.counters, counter)), counter
    )


CHANNEL_EXCHANGE: Final = (
    _counted("channel_messages_published_total", "Messages published", "publish"),
    _counted("channel_messages_confirmed_total", "Messages confirmed", "confirm"),
    _counted(
        "channel_messages_unroutable_returned_total",
        "Messages returned to the publisher: they reached no queue",
        "return_unroutable",
    ),
    _counted(
        "channel_messages_unroutable_dropped_total",
        "Messages dropped: they reached no queue",
        "drop_unroutable",
    ),
)
CHANNEL_PROCESS: Final = (
    OfChannel(Metric("channel_process_reductions_total", COUNTER, "Always 0"), lambda each: 0),
)
CHANNEL_QUEUE: Final = (
    _counted("channel_get_ack_total", "Messages returned by basic.get, to be acknowledged", "get"),
    _counted("channel_get_total", "Messages returned by basic.get without acknowledgement", "get_no_ack"),
    _counted(
        "channel_messages_delivered_ack_total",
        "Messages delivered to consumers, to be acknowledged",
        "deliver",
    ),
    _counted(
        "channel_messages_delivered_total",
        "Messages delivered to consumers without acknowledgement",
        "deliver_no_ack",
    ),
    _counted("channel_messages_redelivered_total", "Messages delivered again", "redeliver"),
    _counted("channel_messages_acked_total", "Messages acknowledged", "ack"),
    _counted("channel_get_empty_total", "Calls of basic.get that found a queue empty", "get_empty"),
)

# --- connections ---

CONNECTION_COARSE: Final = (
    OfConnection(
        Metric("connection_incoming_bytes_total", COUNTER, "Bytes received from a client"),
        lambda each: each.recv_oct,
    ),
    OfConnection(
        Metric("connection_outgoing_bytes_total", COUNTER, "Bytes sent to a client"),
        lambda each: each.send_oct,
    ),
    OfConnection(Metric("connection_process_reductions_total", COUNTER, "Always 0"), lambda each: 0),
)
CONNECTION: Final = (
    OfConnection(
        Metric("connection_incoming_packets_total", COUNTER, "Reads of a socket"), lambda each: each.recv_cnt
    ),
    OfConnection(
        Metric("connection_outgoing_packets_total", COUNTER, "Writes to a socket"), lambda each: each.send_cnt
    ),
    OfConnection(Metric("connection_pending_packets", GAUGE, "Always 0"), lambda each: 0),
    OfConnection(
        Metric("connection_channels", GAUGE, "Channels of a connection"), lambda each: len(each.channels)
    ),
)

NODE_FAMILIES: Final[Mapping[str, tuple[OfNode, ...]]] = {
    "connection_churn_metrics": CHURN,
    "node_coarse_metrics": NODE_COARSE,
    "node_metrics": NODE,
    "node_persister_metrics": PERSISTER,
}
QUEUE_FAMILIES: Final[Mapping[str, tuple[OfQueue, ...]]] = {
    "queue_coarse_metrics": QUEUE_COARSE,
    "queue_consumer_count": (QUEUE_CONSUMERS,),
    "queue_metrics": QUEUE,
    "channel_queue_exchange_metrics": QUEUE_PUBLISHED,
    "queue_delivery_metrics": QUEUE_DELIVERED,
}
PAIR_FAMILIES: Final = frozenset(
    {"channel_exchange_metrics", "channel_queue_metrics", "channel_queue_exchange_metrics"}
)
"""Families whose rows are pairs: a channel with an exchange, a queue or both."""
ONLY_PER_OBJECT: Final = frozenset({"queue_delivery_metrics", EXCHANGE_FAMILY})
"""Families without sums: the families of channels have the same sums."""
CHANNEL_FAMILIES: Final[Mapping[str, tuple[OfChannel, ...]]] = {
    "channel_metrics": CHANNEL,
    "channel_exchange_metrics": CHANNEL_EXCHANGE,
    "channel_process_metrics": CHANNEL_PROCESS,
    "channel_queue_metrics": CHANNEL_QUEUE,
}
CONNECTION_FAMILIES: Final[Mapping[str, tuple[OfConnection, ...]]] = {
    "connection_coarse_metrics": CONNECTION_COARSE,
    "connection_metrics": CONNECTION,
}

# --- mirrored queues: our own ---

MIRRORS: Final = Metric("queue_mirrors", GAUGE, "Copies of a queue on other nodes")
MIRRORS_SYNCHRONISED: Final = Metric(
    "queue_mirrors_synchronised", GAUGE, "Mirrors of a queue that are synchronised"
)
MIRROR_BEHIND: Final = Metric(
    "queue_mirror_behind_broadcasts",
    GAUGE,
    "Broadcasts of the queue that some mirror has not got yet, the same for each of its mirrors",
)
MIRROR_MISSING: Final = Metric(
    "queue_mirror_missing_messages", GAUGE, "Messages of the queue that a mirror has not got, at most"
)
SYNC_IN_PROGRESS: Final = Metric("queue_sync_in_progress", GAUGE, "Mirrors that are being synchronised now")
MIRRORED_QUEUES: Final = Metric("mirrored_queues", GAUGE, "Mirrored queues whose master is this node")
UNSYNCHRONISED_QUEUES: Final = Metric(
    "unsynchronised_queues",
    GAUGE,
    "Mirrored queues whose master is this node and that have an unsynchronised mirror",
)
QUEUES_WITHOUT_MASTER: Final = Metric(
    "queues_without_master", GAUGE, "Mirrored queues of the cluster that have no master now"
)
MASTER_CHANGES: Final = Metric(
    "queue_master_changes_total", COUNTER, "Changes of queues' masters to another node"
)
MIRRORING_EVENTS: Final = Metric("mirroring_events_total", COUNTER, "Events of mirrored queues, by kind")
UNREADABLE_MESSAGES: Final = Metric(
    "unreadable_messages_total",
    COUNTER,
    "Messages lost: the disk could not read them, and no mirror had them",
)
DUPLICATE_MESSAGES: Final = Metric(
    "duplicate_messages_total",
    COUNTER,
    "Messages dropped as duplicates, by queues and exchanges that deduplicate",
)
PLUGIN_FAILURES: Final = Metric("plugin_failures_total", COUNTER, "Exceptions of plug-ins, by plug-in")
DAMAGED_FILES: Final = Metric(
    "store_damaged_files", GAUGE, "Files with messages that are known to be damaged"
)
SCRUBBED_BYTES: Final = Metric(
    "store_scrubbed_bytes_total", COUNTER, "Bytes read by the scrubber, which looks for damage"
)
SCRUB_ROUNDS: Final = Metric("store_scrub_rounds_total", COUNTER, "Complete rounds of the scrubber")
SCRUB_FINDINGS: Final = Metric("store_scrub_findings_total", COUNTER, "Damaged files found by the scrubber")
LOOP_HELD: Final = Metric(
    "event_loop_held_seconds",
    GAUGE,
    "The longest time for which one piece of work held the event loop, in the last minute",
)
PARTITIONED_PEERS: Final = Metric(
    "partitioned_peers", GAUGE, "Nodes that are up and cannot be reached from this one"
)
