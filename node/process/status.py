"""This module reports the status of a node and of its cluster, in the formats that scripts parse.

Source: management §3.4, amqp-behaviour §9.7.
"""

import functools
import os
import platform
import ssl
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from node.admin.feature_flags import feature_flags
from node.catalogue.commands import Refused, SetGlobalParameter
from node.clustering import message_disk, metadata_disk
from node.config.config import Config
from node.io.control import unavailable
from node.io.resources import (
    free_disk_bytes,
    free_limit_bytes,
    rss_bytes,
    total_memory_bytes,
    watermark_bytes,
)
from node.management import node_facts
from node.store.directory import RAFT
from node.version import COMPATIBLE_VERSION, VERSION

if TYPE_CHECKING:
    from node.app import Node
    from node.broker.broker import Broker
    from node.clustering.cluster import Cluster
    from node.process.agent import Agent

_ERLANG: Final = "25.2.3"
"""The Erlang version of the RabbitMQ that Fluffle is compatible with: some tools parse it."""
_PROTOCOLS: Final = {False: ("amqp", "AMQP 0-9-1"), True: ("amqp/ssl", "AMQP 0-9-1 over TLS")}

_HTTP_PURPOSES: Final = {
    "http": "HTTP API",
    "https": "HTTP API over TLS (HTTPS)",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "https/prometheus": "Prometheus exporter API over TLS (HTTPS)",
}

DAMAGED_FILES_MAX: Final = 20
"""The most damaged files that `status` names."""

NOT_DRAINING: Final = "not under maintenance"
DRAINING: Final = "marked for maintenance"


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of the software that runs here."""
    return {
        "rabbitmq_name": "RabbitMQ",
        "rabbitmq_version": COMPATIBLE_VERSION,
        "erlang_version": _ERLANG,
        "fluffle_version": VERSION,
        "python_version": platform.python_version(),
    }


def active_plugins(agent: "Agent") -> list[str]:
    """Return the names of the plug-ins whose work the node does."""
    return node_facts.active_plugins(agent.config, None if agent.node is None else agent.node.broker)


def own_status(agent: "Agent") -> dict[str, Any]:
    """Return the status that this node sends to the other members (`cluster.membership`), and that `cluster_status`
    shows.

    alarms: see `_alarms`.   connections: `[vhost or null, user or null, how many]`, as they count for limits.
    channels: `[user, how many]`, of users with a limit of them.   cut_off: nodes that are up and not linked, if any.
    """
    broker = None if agent.node is None else agent.node.broker
    return {
        "versions": versions(),
        "listeners": _listeners(agent),
        "alarms": _alarms(agent, broker),
        "connections": []
        if broker is None
        else [[vhost, user, n] for (vhost, user), n in broker.connection_counts.items() if n],
        "channels": [] if broker is None else _limited_channels(broker),
        "is_draining": agent.is_draining,
        "is_paused": agent.is_paused,
        **_cut_off(agent),
        **_place(agent.config),
    }


def _alarms(agent: "Agent", broker: "Broker | None") -> list[str]:
    """Return the resources that the node is short of, and its stuck disks, which block no publisher."""
    found: list[str] = [] if broker is None else list(broker.alarms.short_of_here())
    if agent.cluster is not None and agent.cluster.metadata_disk.is_stuck:
        found.append(metadata_disk.ALARM)
    if _is_message_disk_stuck(agent):
        found.append(message_disk.ALARM)
    return found


def _cut_off(agent: "Agent") -> dict[str, list[str]]:
    cluster = agent.cluster
    if cluster is None:
        return {}
    others = (
        each.name for each in cluster.roster.members.values() if each.is_up and each.name != cluster.name
    )
    found = sorted(name for name in others if name not in cluster.links.up)
    return {"cut_off": found} if found else {}


def _is_message_disk_stuck(agent: "Agent") -> bool:
    return agent.cluster is not None and agent.cluster.message_disk.is_stuck


def _place(config: Config) -> dict[str, Any]:
    """Return the zone and the labels of this node, as far as they are configured."""
    told = config.telemetry
    zone = {"zone": told.zone} if told.zone else {}
    return {**zone, "labels": dict(told.labels)} if told.labels else zone


def places(agent: "Agent") -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """Return the zones and labels of all nodes that are up and have some."""
    zones: dict[str, str] = {}
    labels: dict[str, Mapping[str, str]] = {}
    for node, told in statuses(agent).items():
        zone, named = told.get("zone"), told.get("labels")
        if isinstance(zone, str):
            zones[node] = zone
        if isinstance(named, dict) and all(isinstance(value, str) for value in named.values()):
            labels[node] = named
    return zones, labels


def _limited_channels(broker: "Broker") -> list[list[Any]]:
    found = []
    for name, count in broker.channel_counts.items():
        user = broker.catalogue.user(name)
        if user is not None and user.limits.max_channels is not None:
            found.append([name, count])
    return found


def statuses(agent: "Agent") -> dict[str, dict[str, Any]]:
    """Return the latest status of each node that is up."""
    found: dict[str, dict[str, Any]] = {agent.config.node_name: own_status(agent)}
    if agent.cluster is not None:
        found.update((name, dict(told)) for name, told in agent.cluster.membership.statuses.items())
    return found


def running_nodes(agent: "Agent") -> list[str]:
    """Return the nodes whose broker runs, this one first."""
    name, cluster = agent.config.node_name, agent.cluster
    own = [] if agent.node is None else [name]
    # Until a node has caught up after its start, its list of members may be old.
    members = cluster.roster.members if cluster is not None and cluster.roster.is_current else {}
    return own + sorted(each.name for each in members.values() if each.is_up and each.name != name)


def cluster_status(agent: "Agent") -> dict[str, Any]:
    """Return the result of `cluster_status`."""
    name, told = agent.config.node_name, statuses(agent)
    running = running_nodes(agent)
    found: dict[str, Any] = {
        "cluster_name": agent.config.cluster_name,
        "disk_nodes": [name],
        "ram_nodes": [],
        "witness_nodes": [],
        "running_nodes": running,
        "versions": {node: told[node]["versions"] for node in running if "versions" in told.get(node, {})},
        "maintenance_status": {node: _maintenance(agent, node) for node in running},
        "alarms": [
            {"node": node, "resource": resource, "type": "resource_limit"}
            for node in running
            for resource in told.get(node, {}).get("alarms", ())
        ],
        "partitions": {},
        "listeners": {node: told.get(node, {}).get("listeners", []) for node in running},
        "feature_flags": [{"name": each["name"], "state": each["state"]} for each in feature_flags()],
        "internal_cluster_id": "",
        "leader": None,
        "voters": [],
        "paused": agent.is_paused,
        "has_majority": True,
        "is_clusterable": agent.cluster is not None,
    }
    if agent.cluster is not None:
        found.update(_clustered(agent.cluster))
    catalogue = _catalogue(agent)
    if catalogue is not None:
        found["cluster_name"] = catalogue.global_parameter("cluster_name") or agent.config.cluster_name
        found["internal_cluster_id"] = catalogue.global_parameter("internal_cluster_id") or ""
    return found


def node_status(agent: "Agent") -> dict[str, Any]:
    """Return the result of `status`."""
    config, node = agent.config, agent.node
    total_bytes = total_memory_bytes(config.memory.total_override_bytes)
    memory = config.memory
    rss = rss_bytes()
    return {
        "pid": os.getpid(),
        "os": f"{platform.system()} {platform.release()}",
        "uptime": round(time.monotonic() - agent.started_at),
        "node": config.node_name,
        "is_running": node is not None,
        "is_booting": agent.broker_supervisor.is_booting,
        "phase": agent.phase,
        "waits_for": agent.waits_for,
        "is_paused": agent.is_paused,
        "is_draining": agent.is_draining,
        "is_message_disk_stuck": _is_message_disk_stuck(agent),
        "product_name": config.product.name,
        "product_version": config.product.version,
        "crypto_lib_version": ssl.OPENSSL_VERSION,
        "is_under_maintenance": agent.is_draining,
        "active_plugins": active_plugins(agent),
        "enabled_plugin_file": config.enabled_plugins_file,
        "data_directory": config.data_dir,
        "raft_data_directory": os.path.join(config.data_dir, RAFT) if agent.cluster is not None else "",
        "config_files": list(config.files),
        "log_files": _log_files(agent),
        "alarms": cluster_status(agent)["alarms"],
        "memory": {"strategy": "rss", "total": {"rss": rss, "allocated": rss, "erlang": rss}},
        "vm_memory_calculation_strategy": memory.calculation_strategy,
        "vm_memory_high_watermark_setting": {"relative": memory.watermark_relative}
        if memory.watermark_absolute_bytes is None
        else {"absolute": memory.watermark_absolute_bytes},
        "vm_memory_high_watermark_limit": watermark_bytes(memory, total_bytes)
        if node is None
        else node.guard.memory.limit_bytes,
        "file_descriptors": _descriptors(node),
        "disk_free": free_disk_bytes(config.data_dir),
        "disk_free_limit": free_limit_bytes(config.disk, total_bytes)
        if node is None
        else node.guard.disk.limit_bytes,
        "totals": _totals(node),
        "run_queue": 0,
        "loop_lag_ms": agent.management.loop_lag_ms,
        "loop_lag_longest_ms": agent.management.longest_lag_ms,
        "processes": {"limit": sys.maxsize, "used": 0 if node is None else len(node.broker.connections)},
        "net_ticktime": config.cluster.lease_s,
        "partitions": [] if agent.cluster is None else list(agent.cluster.membership.partitions),
        "listeners": _listeners(agent),
        "damaged_files": [] if node is None else node.broker.storage.damaged_files()[:DAMAGED_FILES_MAX],
        "links": links(agent),
        "release_series_support_status": "supported",
        **versions(),
    }


async def set_cluster_name(node: "Node", name: str) -> None:
    """Change the name of the cluster. Raises: ControlError."""
    from node.admin.submission import submit

    result = await submit(node.broker.log, SetGlobalParameter("cluster_name", name))
    if isinstance(result, Refused):
        raise unavailable(result.text)


def _clustered(cluster: "Cluster") -> dict[str, Any]:
    """Return the part of `cluster_status` that only a member of a cluster has."""
    metadata, known = cluster.metadata, cluster.roster.known_members().values()
    partitions = cluster.membership.partitions
    by_type = {
        node_type: sorted(each.name for each in known if each.type == node_type)
        for node_type in ("disc", "ram", "witness")
    }
    if not known:
        by_type["ram" if cluster.roster.identity.type == "ram" else "disc"] = [cluster.name]
    return {
        "disk_nodes": by_type["disc"],
        "ram_nodes": by_type["ram"],
        "witness_nodes": by_type["witness"],
        "partitions": {cluster.name: partitions} if partitions else {},
        "leader": None if metadata is None else metadata.raft.leader,
        "voters": [] if metadata is None else sorted(metadata.raft.voters),
        "has_majority": metadata is not None and metadata.raft.has_majority,
    }


def link_octets(agent: "Agent") -> dict[str, tuple[int, ...]]:
    """Return the octets sent to and received from each other node that is linked."""
    traffic = {} if agent.cluster is None else agent.cluster.links.transport.traffic()
    return {name: (each.sent_bytes, each.received_bytes) for name, each in traffic.items() if each.is_up}


def links(agent: "Agent") -> list[dict[str, Any]]:
    """Return the links to other nodes that are up, with addresses under which the nodes reach each other."""
    cluster = agent.cluster
    if cluster is None or cluster.links.place is None:  # it is none yet, or has only begun to open
        return []
    here, _, port = cluster.links.address.rpartition(":")
    found = []
    for name, each in sorted(cluster.links.transport.traffic().items()):
        there, _, peer_port = each.address.rpartition(":")
        if each.is_up:
            found.append(
                {
                    "name": name,
                    "peer_addr": there,
                    "peer_port": int(peer_port or 0),
                    "sock_addr": here,
                    "sock_port": int(port or 0),
                    "send_bytes": each.sent_bytes,
                    "recv_bytes": each.received_bytes,
                }
            )
    return found


def member_list(cluster: "Cluster") -> dict[str, Any]:
    """Return the result of `list_members`."""
    members, metadata = cluster.roster.members, cluster.metadata
    rows = []
    for name, known in sorted(cluster.roster.known_members().items()):
        member = members.get(name)
        rows.append(
            {
                **known._asdict(),
                "incarnation": 0 if member is None else member.incarnation,
                "is_up": member is not None and member.is_up,
                "is_draining": member is not None and member.is_draining,
                "is_linked": name == cluster.name or name in cluster.membership.reachable,
            }
        )
    return {
        "members": rows,
        "leader": None if metadata is None else metadata.raft.leader,
        "voters": [] if metadata is None else sorted(metadata.raft.voters),
    }


# --- parts ---


def _maintenance(agent: "Agent", node: str) -> str:
    member = None if agent.cluster is None else agent.cluster.roster.members.get(node)
    is_draining = agent.is_draining if member is None else member.is_draining
    return DRAINING if is_draining else NOT_DRAINING


def _catalogue(agent: "Agent") -> Any:
    if agent.cluster is not None:
        return agent.cluster.roster.catalogue
    return None if agent.node is None else agent.node.broker.catalogue


def _listeners(agent: "Agent") -> list[dict[str, Any]]:
    name = agent.config.node_name
    found = []
    for host, port in agent.listeners:
        protocol, purpose = _PROTOCOLS[(host, port) in agent.tls_listeners]
        found.append(_listener(name, host, port, protocol, purpose))
    for each in agent.node.plugin_listeners if agent.node is not None else ():
        protocol = f"{each.protocol}/ssl" if each.is_tls else each.protocol
        found.append(_listener(name, each.address.host, each.address.port, protocol, "clients of a plug-in"))
    for protocol, host, port in agent.management.listeners:
        found.append(_listener(name, host, port, protocol, _HTTP_PURPOSES[protocol]))
    if agent.cluster is not None and agent.cluster.links.place is not None:
        host, port = agent.cluster.links.place
        found.append(_listener(name, host, port, "clustering", "inter-node and CLI tool communication"))
    return found


def _listener(node: str, host: str, port: int, protocol: str, purpose: str) -> dict[str, Any]:
    interface = f"[{host}]" if ":" in host else host or "[::]"
    return {"interface": interface, "node": node, "port": port, "protocol": protocol, "purpose": purpose}


def _log_files(agent: "Agent") -> list[str]:
    log = agent.config.log
    files = [f"<{log.console.stream}>"] if log.console is not None else []
    return files + ([log.file.path] if log.file is not None else [])


def _descriptors(node: "Node | None") -> dict[str, int]:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    sockets = 0 if node is None else len(node.broker.connections)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = sockets
    return {
        "total_limit": limit,
        "total_used": used,
        "sockets_limit": limit * 9 // 10,
        "sockets_used": sockets,
    }


def _totals(node: "Node | None") -> dict[str, int]:
    if node is None:
        return {"connection_count": 0, "queue_count": 0, "virtual_host_count": 0}
    catalogue = node.broker.catalogue
    vhosts = list(catalogue.vhosts())
    return {
        "connection_count": len(node.broker.connections),
        "queue_count": sum(len(catalogue.queues(vhost.name)) for vhost in vhosts),
        "virtual_host_count": len(vhosts),
    }
