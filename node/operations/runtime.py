"""The operations on a node's process and its surroundings: memory, disk, log, configuration, TLS, health.

Source: management §3.2, §3.4; RabbitMQ 3.10.8's output.
"""

from typing import Final

from node.operations.operation import BOTH, DIAGNOSTICS, QUEUES, Operation, Table

_MONITORING: Final = "Monitoring, observability and health checks"
_OPERATIONS: Final = "Operations"

RUNTIME: Final = Table(
    "Configuration and Environment",
    (
        Operation("await_online_quorum_plus_one"),
        Operation("await_online_synchronized_mirror"),
        Operation(
            "certificates",
            "",
            "Displays certificates of TLS listeners",
            "Certificates of node {node} ...",
            tools=DIAGNOSTICS,
        ),
        Operation("check_certificate_expiration", "--within-days:number=28"),
        Operation("check_if_node_is_mirror_sync_critical"),
        Operation("check_if_node_is_quorum_critical"),
        Operation(
            "command_line_arguments",
            "",
            "Displays the command line of the node's process",
            "Command line arguments of node {node} ...",
            tools=DIAGNOSTICS,
        ),
        Operation(
            "discover_peers",
            "",
            "Lists the nodes that the configuration names as members of the cluster",
            "Discovering peers nodes ...",
            tools=DIAGNOSTICS,
            section=_MONITORING,
        ),
        Operation(
            "environment",
            "",
            "Displays the configuration of the node",
            "Application environment of node {node} ...",
            tools=BOTH,
        ),
        Operation(
            "force_gc",
            "",
            "Makes the node free memory that it no longer needs",
            "Will ask all processes on node {node} to schedule a full sweep GC",
            "[--timeout <timeout>]",
            section=_OPERATIONS,
        ),
        Operation("log_stream", "--after?:any"),
        Operation(
            "log_tail",
            "--number:number=50",
            "Prints the last lines of the node's log",
            "Last {number} log lines on node {node} ...",
            "[--number|-N <number>] [--timeout <timeout>]",
            tools=DIAGNOSTICS,
            section=_MONITORING,
        ),
        Operation(
            "memory_breakdown",
            "",
            "Shows the node's use of memory by purpose",
            "Reporting memory breakdown on node {node}...",
            "[--unit <unit>] [--timeout <timeout>]",
            tools=DIAGNOSTICS,
            section=_MONITORING,
        ),
        Operation(
            "os_env",
            "",
            "Lists the environment variables that configure the node",
            "Listing RabbitMQ-specific environment variables defined on node {node}...",
            tools=DIAGNOSTICS,
        ),
        Operation("plugins"),
        Operation(
            "quorum_status",
            "--vhost=/ queue",
            "Displays the copies of a quorum queue",
            "Status of quorum queue {queue} on node {node} ...",
            tools=DIAGNOSTICS | QUEUES,
            section=_MONITORING,
        ),
        Operation(
            "reset_node_auth_attempt_metrics",
            "",
            "Resets the counts of login attempts",
            "Reset auth attempt metrics on node {node} ...",
            tools=DIAGNOSTICS,
        ),
        Operation(
            "resolve_hostname",
            "--family=ipv4 hostname",
            "Resolves a host name on the node",
            usage="<hostname> [--address-family <ipv4 | ipv6>]",
            tools=DIAGNOSTICS,
        ),
        Operation(
            "set_disk_free_limit",
            "--relative?:any --absolute-bytes?:number",
            "Sets the limit of free disk space; it holds until the node restarts",
            usage="<disk_limit> | mem_relative <fraction>",
        ),
        Operation(
            "set_log_level",
            "level",
            "Sets the log level; it holds until the node restarts",
            'Setting log level to "{level}" ...',
            "<log_level>",
        ),
        Operation(
            "set_vm_memory_high_watermark",
            "--relative?:any --absolute-bytes?:number",
            "Sets the limit of used memory; it holds until the node restarts",
            usage="<fraction> | absolute <value>",
        ),
        Operation("tls"),
    ),
)
