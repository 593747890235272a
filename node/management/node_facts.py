"""The facts of a node and its usage, as `/nodes` shows them.

Another node may ask for them, so nothing of HTTP is imported here. Fields that only Erlang could fill are there as
well, since tools read them: with the nearest value, or 0. Source: management §1.2.
"""

import gc
import os
import resource
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from node.app import Node
from node.broker.broker import Broker
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAYED_TYPE
from node.catalogue.recent_history import HISTORY_TYPE
from node.config.config import Config
from node.config.plugins import DEFAULT, EVENTS, FOR_ALL_NODES, MANAGEMENT, PROMETHEUS, with_needed
from node.io.resources import free_disk_bytes, rss_bytes
from node.management.plugin_rows import rows_here
from node.queue.counters import DiskCounters
from node.statistics.query import Query, Range
from node.statistics.series import IDLE
from node.statistics.statistics import LINK_OCTETS, Statistics
from node.statistics.sums import means
from node.statistics.watches import CHURN
from node.version import COMPATIBLE_VERSION, VERSION

Facts = dict[str, Any]

PROCESSES_MAX: Final = 1048576
"""Erlang's default limit. There are no processes here: connections, channels and queues count as such."""

_EXCHANGE_TYPES: Final = tuple(
    {"name": name, "description": description, "enabled": True}
    for name, description in (
        *((name, f"AMQP {name} exchange") for name in ("direct", "fanout", "headers", "topic")),
        (DELAYED_TYPE, "Delayed messages exchange"),
        (DEDUPLICATION_TYPE, "Message deduplication exchange"),
        (HISTORY_TYPE, "Recent history exchange"),
    )
)

_MECHANISMS: Final = {
    "PLAIN": "user name and password",
    "AMQPLAIN": "user name and password in a field table",
    "EXTERNAL": "the name in the client's certificate",
}

_DESCRIPTIONS: Final = {
    EVENTS: "events as messages",
    MANAGEMENT: "HTTP API and web UI",
    "rabbitmq_management_agent": "statistics of this node",
    PROMETHEUS: "metrics",
    "rabbitmq_web_dispatch": "HTTP listeners",
}

CONTEXTS: Final = {"http": "RabbitMQ Management", "http/prometheus": "RabbitMQ Prometheus"}
"""The service of a listener, by its protocol without TLS."""

_MEMORY_PARTS: Final = [
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
]

_GARBAGE: Final = [
    "connection_closed",
    "channel_closed",
    "consumer_deleted",
    "exchange_deleted",
    "queue_deleted",
    "vhost_deleted",
    "node_node_deleted",
    "channel_consumer_deleted",
]

_STORE: Final = (
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_write_count",
    "queue_index_read_count",
)

LOOP_LAG_US: Final = "loop_lag_us"
"""The longest time in a tick's interval for which the event loop was held, in µs, as it is kept over time."""

_MEAN_TIMES: Final = {f"io_{what}_avg_time": what for what in ("read", "write", "sync")}
"""Mean times in ms and their disk operation: computed from the counts and times that are kept over time."""


def node_facts(node: Node, status: Mapping[str, Any], statistics: Statistics, query: Query) -> Facts:
    """Return the row of this node.

    status: see `node.process.status.node_status`.
    query: `fields` and the range `node_stats` count. Facts that cost some memory are there when the query is
    detailed, or when the field "memory" is asked for.
    """
    broker = node.broker
    alarms = broker.alarms.short_of_here()
    facts: Facts = {
        "partitions": list(status.get("partitions", ())),
        "os_pid": str(status["pid"]),
        "fd_total": status["file_descriptors"]["total_limit"],
        "sockets_total": status["file_descriptors"]["sockets_limit"],
        "mem_limit": status["vm_memory_high_watermark_limit"],
        "mem_alarm": "memory" in alarms,
        "disk_free_limit": status["disk_free_limit"],
        "disk_free_alarm": "disk" in alarms,
        "proc_total": PROCESSES_MAX,
        "rates_mode": statistics.options.rates_mode,
        "uptime": round(status["uptime"] * 1000),
        "run_queue": status["run_queue"],
        "loop_lag": status["loop_lag_ms"],
        "loop_lag_details": _loop_lags(statistics, query.ranges.node_stats),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "exchange_types": exchange_types(broker),
        "auth_mechanisms": [
            {"name": name, "description": text, "enabled": name in node.config.auth.mechanisms}
            for name, text in _MECHANISMS.items()
        ],
        "applications": _applications(node.config, broker),
        "contexts": [context_of(listener) for listener in status["listeners"] if is_http(listener)],
        "log_files": status["log_files"],
        "db_dir": status["data_directory"],
        "config_files": status["config_files"],
        "net_ticktime": round(status["net_ticktime"]),
        "enabled_plugins": enabled_plugins(node.config, broker),
        "mem_calculation_strategy": status["vm_memory_calculation_strategy"],
        "ra_open_file_metrics": {
            "ra_log_wal": 1 if status["raft_data_directory"] else 0,
            "ra_log_segment_writer": 0,
        },
        "name": node.config.node_name,
        "type": _type(node),
        "running": True,
        "being_drained": bool(status["is_draining"]),
    }
    facts.update(_measured(node, statistics, query.ranges.node_stats))
    facts["store_scrub"] = _scrub_facts(node)
    facts["cluster_links"] = [_link(each, statistics) for each in status.get("links", ())]
    facts["metrics_gc_queue_length"] = dict.fromkeys(_GARBAGE, 0)
    if query.fields is not None and "auth_attempts" in query.fields:
        facts["auth_attempts"] = _auth_attempts(node)
    if query.fields is not None and "plugins" in query.fields:
        facts["plugins"] = rows_here(broker, _parts(node.config))
    if query.is_detailed or (query.fields is not None and "memory" in query.fields):
        facts["memory"] = memory_breakdown(node)
    if query.fields is not None:
        facts = {name: value for name, value in facts.items() if query.wants(name)}
    return facts


def stopped_node(name: str, node_type: str) -> Facts:
    """Return the row of a node that doesn't run: these three fields are all that RabbitMQ knows then."""
    return {"name": name, "type": node_type, "running": False}


def measure(node: Node) -> dict[str, int]:
    """Measure the figures of a node that are kept over time. Takes less than a millisecond."""
    broker, disk = node.broker, disk_counters(node)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    connections = broker.connections.values()
    found = {
        "mem_used": rss_bytes(),
        "fd_used": open_files(),
        "sockets_used": len(connections),
        "proc_used": 2 * len(connections)
        + sum(len(connection.channels) for connection in connections)
        + sum(len(vhost.queues) for vhost in broker.vhosts.values()),
        "disk_free": _free_disk(node.config),
        "gc_num": sum(generation["collections"] for generation in gc.get_stats()),
        "gc_bytes_reclaimed": 0,
        "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
        "io_read_count": disk.io_read_count,
        "io_read_bytes": disk.io_read_bytes,
        "io_write_count": disk.io_write_count,
        "io_write_bytes": disk.io_write_bytes,
        "io_sync_count": disk.io_sync_count,
        **{_time_name(what): round(getattr(disk, f"io_{what}_time") * 1e6) for what in _MEAN_TIMES.values()},
        "io_seek_count": 0,
        "io_reopen_count": 0,
        "mnesia_ram_tx_count": broker.catalogue.version,
        "mnesia_disk_tx_count": broker.catalogue.version,
    }
    found.update((name, getattr(disk, name)) for name in _STORE)
    found.update((name, getattr(broker.counters, name)) for name in CHURN)
    return found


def memory_breakdown(node: Node) -> Facts:
    """Return the uses of the resident memory, as far as Python tells: messages; the rest is `other_system`."""
    rss = rss_bytes()
    pager = node.broker.pager
    messages = min(rss, sum(queue.backlog.memory_bytes for queue in node.broker.local_queues))
    if pager is not None:
        copies = sum(copy.memory_bytes for copy in pager.copies())
    else:
        copies = 0
    parts: Facts = dict.fromkeys(_MEMORY_PARTS, 0)
    parts["binary"] = messages
    parts["queue_slave_procs"] = min(rss - messages, copies)
    parts["other_system"] = rss - messages - parts["queue_slave_procs"]
    return {**parts, "strategy": "rss", "total": {"erlang": rss, "rss": rss, "allocated": rss}}


def relative(memory: Mapping[str, Any]) -> Facts:
    """Return a breakdown in per cent of all memory; a part that is not 0 counts as 1 at least."""
    whole = max(memory["total"].values())
    return {
        "total": 100,
        **{name: max(1, memory[name] * 100 // whole) if memory[name] else 0 for name in _MEMORY_PARTS},
    }


def disk_counters(node: Node) -> DiskCounters:
    """Return the disk's counters for messages; all 0 for a broker without a disk."""
    counters = getattr(node.broker.storage, "counters", None)
    return counters if isinstance(counters, DiskCounters) else DiskCounters()


def open_files() -> int:
    """Return the number of descriptors of this process."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def is_http(listener: Mapping[str, Any]) -> bool:
    """True if a listener of `status` speaks HTTP."""
    return str(listener["protocol"]).startswith("http")


def context_of(listener: Mapping[str, Any]) -> Facts:
    """Return an HTTP listener of `status` as a context."""
    is_tls = listener["protocol"].startswith("https")
    protocol = listener["protocol"].replace("https", "http", 1)
    found: Facts = {
        "ssl_opts": [],
        "description": CONTEXTS.get(protocol, protocol),
        "path": "/",
        "cowboy_opts": "[]",
        "ip": address_of(listener),
        "port": str(listener["port"]),
    }
    if is_tls or protocol != "http":
        found["protocol"] = f"'{listener['protocol']}'"
    return found


def address_of(listener: Mapping[str, Any]) -> str:
    """Return the IP address of a listener of `status`, without brackets."""
    return str(listener["interface"]).removeprefix("[").removesuffix("]") or "::"


def exchange_types(broker: Broker) -> list[Facts]:
    """Return the exchange types that this node has: those of AMQP, its own, and those of enabled plug-ins."""
    plugged = [
        {"name": each.name, "description": each.description, "enabled": True}
        for _, plugin in broker.exchange_types.plugins
        if plugin is not None
        for each in plugin.exchange_types
    ]
    return [*_EXCHANGE_TYPES, *plugged]


def enabled_plugins(config: Config, broker: Broker | None = None) -> list[str]:
    """Return the configured plug-ins, or those that are on by default, and those that the cluster has enabled.

    broker: the one that runs, which tells the latter. Without it what the configuration says of these is left out.
    """
    if config.enabled_plugins is not None:
        own = {name for name in config.enabled_plugins if name not in FOR_ALL_NODES}
    else:
        is_on = {MANAGEMENT: config.management.is_on, PROMETHEUS: config.prometheus.is_on}
        own = {name for name in DEFAULT if is_on[name]}
    return sorted(own) if broker is None else sorted(own.union(broker.catalogue.plugins.by_name))


def active_plugins(config: Config, broker: Broker | None) -> list[str]:
    """Return the plug-ins whose work this node does, with those that they need.   broker: the one that runs."""
    active = with_needed(enabled_plugins(config))
    if broker is None:
        return active
    return sorted({*active, *(name for name, plugin in broker.exchange_types.plugins if plugin is not None)})


def _parts(config: Config) -> list[Facts]:
    """Return the plug-ins whose work the node does itself."""
    return [
        {"name": name, "description": _DESCRIPTIONS[name], "version": COMPATIBLE_VERSION}
        for name in with_needed(enabled_plugins(config))
    ]


def _applications(config: Config, broker: Broker) -> list[Facts]:
    plugins = _parts(config)
    plugins += [
        {"name": name, "description": plugin.description, "version": plugin.version}
        for name, plugin in broker.exchange_types.plugins
        if plugin is not None
    ]
    return [
        {"name": "fluffle", "description": "The broker", "version": VERSION},
        {
            "name": "rabbit",
            "description": "The RabbitMQ that this is compatible with",
            "version": COMPATIBLE_VERSION,
        },
        *plugins,
    ]


def _scrub_facts(node: Node) -> Facts:
    """Return the progress of the scrubber, which looks for rotten bytes on disk.   last_round: in ms since 1970, or
    null.
    """
    storage = node.broker.storage
    done = storage.scrubbing
    return {
        "rate": node.config.store.scrub_rate,
        "rounds": done.rounds,
        "last_round": round(done.last_round_s * 1000) or None,
        "checked_bytes": done.checked_bytes,
        "findings": done.findings,
        "damaged_files": len(storage.damaged_files()),
    }


def _auth_attempts(node: Node) -> list[Facts]:
    return [
        {
            "protocol": protocol,
            "auth_attempts": counters.attempts,
            "auth_attempts_failed": counters.failed,
            "auth_attempts_succeeded": counters.succeeded,
        }
        for protocol, counters in node.broker.counters.auth_attempts.items()
    ]


def _type(node: Node) -> str:
    member = node.broker.catalogue.members.get(node.config.node_name)
    return "disc" if member is None else member.type


def _link(link: Mapping[str, Any], statistics: Statistics) -> Facts:
    """Return the row of the links to one other node, with their traffic a second.   link: see
    `node.process.status.links`.
    """
    octets = {name: link[name] for name in LINK_OCTETS}
    details = {f"{name}_details": statistics.link_details(link["name"], name) for name in LINK_OCTETS}
    return {**link, "stats": {**octets, **details}}


def _free_disk(config: Config) -> int:
    try:
        return free_disk_bytes(config.data_dir)
    except OSError:
        return 0


def _measured(node: Node, statistics: Statistics, range_: Range | None) -> Facts:
    facts = measure(node)
    times = {name: facts.pop(_time_name(what)) for name, what in _MEAN_TIMES.items()}
    found: Facts = {}
    for name, value in facts.items():
        found[name] = value
        found[f"{name}_details"] = statistics.node_details(name, range_)
    for name, what in _MEAN_TIMES.items():
        count = facts[f"io_{what}_count"]
        found[name] = times[name] / count / 1000 if count else 0.0
        found[f"{name}_details"] = _mean_times(statistics, what, range_)
    found["io_seek_avg_time"] = 0.0
    found["io_seek_avg_time_details"] = IDLE
    return found


def _mean_times(statistics: Statistics, what: str, range_: Range | None) -> Facts:
    """Return the mean time of a disk operation between samples; 0 where there was none."""
    times = statistics.node_details(_time_name(what), range_).get("samples", ())
    counts = statistics.node_details(f"io_{what}_count", range_).get("samples", ())
    samples = []
    for (time, former), (count, before) in zip(pairwise(times), pairwise(counts), strict=True):
        done = count["sample"] - before["sample"]
        took_us = time["sample"] - former["sample"]
        samples.append((time["timestamp"], took_us / done / 1000 if done > 0 else 0.0))
    return {"rate": 0.0, **means(samples)} if samples else dict(IDLE)


def _loop_lags(statistics: Statistics, range_: Range | None) -> Facts:
    """Return the longest time for which the event loop was held before each sample, in ms."""
    followed = statistics.node_details(LOOP_LAG_US, range_).get("samples", ())
    samples = [(each["timestamp"], each["sample"] / 1000) for each in followed]
    return {"rate": 0.0, **means(samples)} if samples else dict(IDLE)


def _time_name(what: str) -> str:
    """Return the name of a figure of `measure`, in microseconds."""
    return f"io_{what}_time_us"
