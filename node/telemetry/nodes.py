"""The row of a node: its usage, its limits, and its state. Source: spark §2.2."""

import os
import resource
import time
from typing import Any, Final

from node.app import Node
from node.config.config import Config
from node.io.loop_lag import Longest, LoopLag
from node.io.resources import rss_bytes
from node.queue.counters import DiskCounters
from node.telemetry.links import link_columns
from node.telemetry.plugins import PluginColumns
from node.telemetry.process import (
    GcPauses,
    stolen_cpu_ms,
    usable_cores,
    usable_millicores,
    waited_for_cpu_us,
)
from node.telemetry.queues import QueueRows
from node.telemetry.surroundings import Surroundings
from node.version import VERSION

SOCKETS_SHARE: Final = 9, 10
"""The share of all descriptors that is reserved for clients."""


class NodeRows:
    """Makes the row of one node.   lag, pauses: of its process.   longest: of the lag, since the last row."""

    def __init__(
        self,
        node: Node,
        surroundings: Surroundings,
        queues: QueueRows,
        lag: LoopLag,
        longest: Longest,
        pauses: GcPauses,
    ) -> None:
        self._node = node
        self._surroundings = surroundings
        self._queues = queues
        self._lag = lag
        self._longest = longest
        self._pauses = pauses
        self._plugins = PluginColumns(node.broker, node.config.plugin_settings)
        self._started_s = time.monotonic()

    def fields(self, segments_dropped: int) -> dict[str, Any]:
        """Return the present fields. Takes less than a millisecond."""
        node = self._node
        broker, guard, config = node.broker, node.guard, node.config
        rss = rss_bytes()
        members = broker.catalogue.members
        return {
            **_descriptors(len(broker.connections)),
            "mem_rss": rss,
            "mem_limit": guard.memory.limit_bytes,
            "mem_by": _memory(rss, self._queues.memory),
            "disk_free": guard.disk.free_bytes,
            "disk_limit": guard.disk.limit_bytes,
            **_disk(broker.storage.counters),
            **_processor(),
            "clients_us_total": self._queues.clients_us,
            "loop_lag_ms_max": self._longest.take_ms(),
            "loop_lag_us": list(self._lag.histogram),
            "gc_pause_ms_total": round(self._pauses.pause_ms, 3),
            "gc_count_total": self._pauses.count,
            "alarms": sorted(broker.alarms.short_of_here()),
            "blocked_conns": sum(each.throttle.is_blocked for each in broker.connections.values()),
            "conns": len(broker.connections),
            "channels": sum(len(each.channels) for each in broker.connections.values()),
            "conns_opened_total": broker.counters.connection_created,
            "conns_closed_total": broker.counters.connection_closed,
            "queues_master": self._queues.masters,
            "queues_mirror": self._queues.mirrors,
            "uptime_ms": round((time.monotonic() - self._started_s) * 1000),
            "view_id": broker.catalogue.member_changes,
            "view_members": sorted(each.name for each in members.values() if each.is_up)
            or [config.node_name],
            **_told(config),
            "capacity_hints": {"cpu_millicores": usable_millicores()},
            "maintenance": self._surroundings.is_draining,
            "version": VERSION,
            "segments_dropped_total": segments_dropped,
            "plugins": {**(self._plugins.fields() or {}), **link_columns(node.services)} or None,
        }


def _descriptors(sockets: int) -> dict[str, int | None]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 1 << 30
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = None
    share, whole = SOCKETS_SHARE
    return {"fd_used": used, "fd_limit": limit, "sock_used": sockets, "sock_limit": limit * share // whole}


def _memory(rss: int, known: dict[str, int]) -> dict[str, int]:
    """Return the memory of messages, as far as it is known, and the remainder."""
    return {**known, "other": max(0, rss - sum(known.values()))}


def _disk(counters: DiskCounters) -> dict[str, int]:
    return {
        "disk_read_bytes_total": counters.io_read_bytes,
        "disk_write_bytes_total": counters.io_write_bytes,
        "fsync_count_total": counters.io_sync_count,
        "fsync_us_total": round(counters.io_sync_time * 1e6),
    }


def _processor() -> dict[str, int | None]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_user_ms_total": round(usage.ru_utime * 1000),
        "cpu_sys_ms_total": round(usage.ru_stime * 1000),
        "cpu_wait_us_total": waited_for_cpu_us(),
        "cpu_steal_ms_total": stolen_cpu_ms(),
        "cores": usable_cores(),
    }


def _told(config: Config) -> dict[str, Any]:
    """Return the zone and the labels from the node's configuration."""
    return {"zone": config.telemetry.zone, "labels": dict(config.telemetry.labels)}
