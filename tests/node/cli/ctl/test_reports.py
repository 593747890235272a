"""`status` and `cluster_status` as text (management §3.4); the expected text is RabbitMQ 3.10.8's, line by line."""

from typing import Any

from node.cli.ctl.reports import cluster_status, status

LISTENERS = [
    {
        "interface": "[::]",
        "node": "n1@h",
        "port": 43605,
        "protocol": "clustering",
        "purpose": "inter-node and CLI tool communication",
    },
    {
        "interface": "127.0.0.1",
        "node": "n1@h",
        "port": 42579,
        "protocol": "amqp",
        "purpose": "AMQP 0-9-1 and AMQP 1.0",
    },
]

CLUSTER: dict[str, Any] = {
    "alarms": [],
    "cluster_name": "n1@vm",
    "disk_nodes": ["n1@h"],
    "feature_flags": [{"name": "user_limits", "state": "enabled"}],
    "listeners": {"n1@h": LISTENERS},
    "maintenance_status": {"n1@h": "not under maintenance"},
    "partitions": {},
    "ram_nodes": [],
    "running_nodes": ["n1@h"],
    "versions": {
        "n1@h": {"erlang_version": "25.2.3", "rabbitmq_name": "RabbitMQ", "rabbitmq_version": "3.10.8"}
    },
}

CLUSTER_TEXT = """\
**Basics**

Cluster name: n1@vm

**Disk Nodes**

n1@h

**Running Nodes**

n1@h

**Versions**

n1@h: RabbitMQ 3.10.8 on Erlang 25.2.3

**Maintenance status**

Node: n1@h, status: not under maintenance

**Alarms**

(none)

**Network Partitions**

(none)

**Listeners**

Node: n1@h, interface: [::], port: 43605, protocol: clustering, purpose: inter-node and CLI tool communication
Node: n1@h, interface: 127.0.0.1, port: 42579, protocol: amqp, purpose: AMQP 0-9-1 and AMQP 1.0

**Feature flags**

Flag: user_limits, state: enabled"""

STATUS: dict[str, Any] = {
    "active_plugins": [],
    "alarms": [],
    "config_files": ["/r/rabbitmq.conf"],
    "crypto_lib_version": "OpenSSL 3.0.19 27 Jan 2026",
    "data_directory": "/r/mnesia/n1@h",
    "disk_free": 77132200000,
    "disk_free_limit": 50000000,
    "enabled_plugin_file": "/r/enabled_plugins",
    "erlang_version": "Erlang/OTP 25",
    "file_descriptors": {"sockets_limit": 17910, "sockets_used": 0, "total_limit": 19903, "total_used": 2},
    "is_under_maintenance": False,
    "listeners": LISTENERS[1:],
    "log_files": ["/r/log/n1@h.log", "<stdout>"],
    "memory": {
        "code": 31311518,
        "binary": 0,
        "strategy": "rss",
        "total": {"erlang": 67310784, "rss": 125796352, "allocated": 45813760},
    },
    "net_ticktime": 60,
    "node": "n1@h",
    "os": "Linux",
    "pid": 30638,
    "processes": {"limit": 1048576, "used": 268},
    "product_name": "",
    "rabbitmq_version": "3.10.8",
    "raft_data_directory": "/r/quorum/n1@h",
    "release_series_support_status": "supported",
    "run_queue": 1,
    "totals": {"virtual_host_count": 1, "connection_count": 0, "queue_count": 0},
    "uptime": 198,
    "vm_memory_calculation_strategy": "rss",
    "vm_memory_high_watermark_limit": 10110604083,
    "vm_memory_high_watermark_setting": {"relative": 0.4},
}

STATUS_TEXT = """\
**Runtime**

OS PID: 30638
OS: Linux
Uptime (seconds): 198
Is under maintenance?: false
RabbitMQ version: 3.10.8
RabbitMQ release series support status: supported
Node name: n1@h
Erlang configuration: Erlang/OTP 25
Crypto library: OpenSSL 3.0.19 27 Jan 2026
Erlang processes: 268 used, 1048576 limit
Scheduler run queue: 1
Cluster heartbeat timeout (net_ticktime): 60

**Plugins**

Enabled plugin file: /r/enabled_plugins
Enabled plugins:


**Data directory**

Node data directory: /r/mnesia/n1@h
Raft data directory: /r/quorum/n1@h

**Config files**

 * /r/rabbitmq.conf

**Log file(s)**

 * /r/log/n1@h.log
 * <stdout>

**Alarms**

(none)

**Memory**

Total memory used: 0.1258 gb
Calculation strategy: rss
Memory high watermark setting: 0.4 of available memory, computed to: 10.1106 gb

code: 0.0313 gb (24.89 %)
binary: 0.0 gb (0.0 %)

**File Descriptors**

Total: 2, limit: 19903
Sockets: 0, limit: 17910

**Free Disk Space**

Low free disk space watermark: 0.05 gb
Free disk space: 77.1322 gb

**Totals**

Connection count: 0
Queue count: 0
Virtual host count: 1

**Listeners**

Interface: 127.0.0.1, port: 42579, protocol: amqp, purpose: AMQP 0-9-1 and AMQP 1.0"""


def bold(text: str) -> str:
    return "\n".join(
        f"\x1b[1m{line[2:-2]}\x1b[0m" if line.startswith("**") else line for line in text.split("\n")
    )


def test_cluster_status() -> None:
    assert cluster_status(CLUSTER) == bold(CLUSTER_TEXT)


def test_status() -> None:
    assert status(STATUS, "gb") == bold(STATUS_TEXT)


def test_units() -> None:
    text = status(STATUS, "mb")
    assert "Low free disk space watermark: 50.0 mb\n" in text
    assert "computed to: 10110.6041 mb\n" in text
    assert "Total memory used: 125796352 bytes\n" in status(STATUS, "bytes")


def test_an_absolute_watermark() -> None:
    text = status(STATUS | {"vm_memory_high_watermark_setting": {"absolute": 2_000_000_000}}, "gb")
    assert "Memory high watermark setting: 2.0 gb, computed to: 10.1106 gb\n" in text


def test_what_a_cluster_in_trouble_looks_like() -> None:
    text = cluster_status(
        CLUSTER
        | {
            "ram_nodes": ["n2@h"],
            "witness_nodes": ["w@h"],
            "alarms": [{"node": "n1@h", "resource": "memory"}, {"node": "n2@h", "resource": "disk"}],
            "partitions": {"n1@h": ["n2@h", "n3@h"]},
            "leader": None,
            "voters": ["n1@h", "w@h"],
            "has_majority": False,
            "paused": True,
        }
    )
    assert "\x1b[1mRAM Nodes\x1b[0m\n\nn2@h\n" in text
    assert "\x1b[1mWitness Nodes\x1b[0m\n\nw@h\n" in text
    assert "\nMemory alarm on node n1@h\nFree disk space alarm on node n2@h\n" in text
    assert "\nNode n1@h cannot communicate with n2@h, n3@h\n" in text
    assert text.endswith(
        "Leader: (none)\nVoters: n1@h, w@h\nMajority of disk nodes: NOT reached\n"
        "This node is paused: it waits for a majority"
    )


def test_a_node_that_tells_little() -> None:
    """A stopped node knows neither totals nor listeners."""
    assert "Cluster name: " in cluster_status({})
    assert "(none)" in status({}, "gb")


def test_a_name_cannot_move_the_cursor() -> None:
    assert "\\x1b[2J" in cluster_status(CLUSTER | {"cluster_name": "a\x1b[2J"})
