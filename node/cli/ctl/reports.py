"""`status` and `cluster_status` are printed in RabbitMQ's words, with a few lines of our own at the end of sections.

Facts that a node does not report are left out. Source: management §3.4 and RabbitMQ 3.10.8's output.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from node.cli.ctl.formats import BOLD, PLAIN, printable

UNITS: Final = {
    "bytes": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
}

_NONE: Final = ["(none)"]
_ALARMS: Final = {
    "memory": "Memory alarm",
    "disk": "Free disk space alarm",
    "metadata_disk": "Metadata disk alarm",
    "message_disk": "Message disk alarm",
}


def cluster_status(status: Mapping[str, Any]) -> str:
    """Return the text of `cluster_status`."""
    listeners = (
        f"Node: {each['node']}, {listener(each)}"
        for _, several in sorted(status.get("listeners", {}).items())
        for each in several
    )
    versions = (
        f"{node}: {version.get('rabbitmq_name', 'RabbitMQ')} {version.get('rabbitmq_version')}"
        f" on Erlang {version.get('erlang_version')}"
        + (f" (Fluffle {version['fluffle_version']})" if version.get("fluffle_version") else "")
        for node, version in sorted(status.get("versions", {}).items())
    )
    maintenance = (
        f"Node: {node}, status: {state}"
        for node, state in sorted(status.get("maintenance_status", {}).items())
    )
    partitions = (
        f"Node {node} cannot communicate with {', '.join(others)}"
        for node, others in sorted(status.get("partitions", {}).items())
    )
    flags = (f"Flag: {flag['name']}, state: {flag['state']}" for flag in status.get("feature_flags", ()))
    sections: list[tuple[str, list[str]]] = [
        ("Basics", [f"Cluster name: {status.get('cluster_name', '')}"]),
        ("Disk Nodes", list(status.get("disk_nodes", ()))),
    ]
    for title, key in (("RAM Nodes", "ram_nodes"), ("Witness Nodes", "witness_nodes")):
        if status.get(key):
            sections.append((title, list(status[key])))
    sections += [
        ("Running Nodes", list(status.get("running_nodes", ()))),
        ("Versions", list(versions)),
        ("Maintenance status", list(maintenance)),
        ("Alarms", alarms(status.get("alarms", ()))),
        ("Network Partitions", list(partitions)),
        ("Listeners", list(listeners)),
        ("Feature flags", list(flags)),
    ]
    if "has_majority" in status:
        sections.append(("Metadata", _metadata(status)))
    return _sections(sections)


def _metadata(status: Mapping[str, Any]) -> list[str]:
    """Return lines about the leader of the metadata, the voters, and whether there is a majority."""
    lines = [
        f"Leader: {status.get('leader') or '(none)'}",
        f"Voters: {', '.join(status.get('voters', ())) or '(none)'}",
        f"Majority of disk nodes: {'reached' if status['has_majority'] else 'NOT reached'}",
    ]
    return lines + (["This node is paused: it waits for a majority"] if status.get("paused") else [])


def _state(found: Mapping[str, Any]) -> str:
    """Return why the node does not serve although it should; empty if it serves, or an operator stopped it."""
    waits_for = found.get("waits_for") or ""
    match found.get("phase"):
        case "opening" | "starting":
            return "This node is still starting"
        case "waiting":
            return f"This node {waits_for}"
        case "paused":
            return f"This node is cut off from the others and pauses{': it ' if waits_for else ''}{waits_for}"
        case _:
            return ""


def status(found: Mapping[str, Any], unit: str) -> str:
    """Return the text of `status`. unit: one of `UNITS`."""

    def amount(number: float) -> str:
        return f"{round(number / UNITS[unit], 4) if unit != 'bytes' else number} {unit}"

    sections = [("Runtime", _runtime(found))]
    if state := _state(found):
        sections.insert(0, ("State", [state]))
    if "active_plugins" in found:
        file = found.get("enabled_plugin_file")
        plugins = [f" * {name}" for name in found["active_plugins"]]
        sections.append(
            (
                "Plugins",
                ([f"Enabled plugin file: {file}"] if file else []) + ["Enabled plugins:", "", *plugins],
            )
        )
    directories = [("Node data directory", "data_directory"), ("Raft data directory", "raft_data_directory")]
    sections += [
        ("Data directory", [f"{title}: {found[key]}" for title, key in directories if found.get(key)]),
        ("Config files", [f" * {path}" for path in found.get("config_files", ())]),
        ("Log file(s)", [f" * {path}" for path in found.get("log_files", ())]),
        ("Alarms", alarms(found.get("alarms", ()))),
        ("Memory", _memory(found, amount)),
    ]
    files = found.get("file_descriptors", {})
    if files:
        lines = [
            f"Total: {files.get('total_used', 0)}, limit: {files.get('total_limit', 0)}",
            f"Sockets: {files.get('sockets_used', 0)}, limit: {files.get('sockets_limit', 0)}",
        ]
        sections.append(("File Descriptors", lines))
    disk = [("Low free disk space watermark", "disk_free_limit"), ("Free disk space", "disk_free")]
    lines = [
        f"{title}: {amount(found[key])}" for title, key in disk if isinstance(found.get(key), (int, float))
    ]
    sections.append(("Free Disk Space", lines))
    totals = found.get("totals", {})
    counts = [
        ("Connection count", "connection_count"),
        ("Queue count", "queue_count"),
        ("Virtual host count", "virtual_host_count"),
    ]
    sections.append(("Totals", [f"{title}: {totals[key]}" for title, key in counts if key in totals]))
    sections.append(
        (
            "Listeners",
            [listener(each, is_first=True) for each in found.get("listeners", ())],
        )
    )
    return _sections(sections)


_RUNTIME: Final = (
    ("OS PID", "pid"),
    ("OS", "os"),
    ("Uptime (seconds)", "uptime"),
    ("Is under maintenance?", "is_under_maintenance"),
    ("RabbitMQ version", "rabbitmq_version"),
    ("RabbitMQ release series support status", "release_series_support_status"),
    ("Node name", "node"),
    ("Erlang configuration", "erlang_version"),
    ("Crypto library", "crypto_lib_version"),
    ("Scheduler run queue", "run_queue"),
    ("Event loop held at once, longest of the last minute (ms)", "loop_lag_longest_ms"),
    ("Cluster heartbeat timeout (net_ticktime)", "net_ticktime"),
    ("Fluffle version", "fluffle_version"),
    ("Python version", "python_version"),
)


def _runtime(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for title, key in _RUNTIME:
        if found.get(key) not in (None, ""):
            value = found[key]
            lines.append(f"{title}: {str(value).lower() if isinstance(value, bool) else value}")
    processes = found.get("processes", {})
    if processes.get("used"):
        line = f"Erlang processes: {processes.get('used')} used, {processes.get('limit')} limit"
        lines.insert(
            next((n for n, text in enumerate(lines) if text.startswith("Scheduler")), len(lines)), line
        )
    return lines


def _memory(found: Mapping[str, Any], amount: Any) -> list[str]:
    memory = found.get("memory", {})
    strategy = found.get("vm_memory_calculation_strategy", "rss")
    total = memory.get("total", {})
    used = total.get(strategy, memory.get("rss", 0)) if isinstance(total, dict) else total
    setting = found.get("vm_memory_high_watermark_setting", {})
    lines = [f"Total memory used: {amount(used)}", f"Calculation strategy: {strategy}"]
    if setting:
        shown = (
            f"{setting['relative']} of available memory"
            if "relative" in setting
            else amount(setting.get("absolute", 0))
        )
        limit = found.get("vm_memory_high_watermark_limit", 0)
        lines.append(f"Memory high watermark setting: {shown}, computed to: {amount(limit)}")
    parts = {key: value for key, value in memory.items() if isinstance(value, (int, float)) and key != "rss"}
    if parts:
        lines.append("")
        for name, size in sorted(parts.items(), key=lambda item: (-item[1], item[0])):
            lines.append(f"{name}: {amount(size)} ({round(size * 100 / used, 2) if used else 0.0} %)")
    return lines


def alarms(found: Iterable[Any]) -> list[str]:
    """Return a line for each alarm."""
    return [
        f"{_ALARMS.get(alarm['resource'], alarm['resource'])} on node {alarm['node']}"
        if isinstance(alarm, Mapping)
        else str(alarm)
        for alarm in found
    ]


def listener(found: Mapping[str, Any], *, is_first: bool = False) -> str:
    """Return the address and purpose of a listener.   is_first: the text begins its line."""
    return (
        f"{'I' if is_first else 'i'}nterface: {found['interface']}, port: {found['port']}, "
        f"protocol: {found['protocol']}, purpose: {found['purpose']}"
    )


def _sections(sections: Sequence[tuple[str, Sequence[str]]]) -> str:
    blocks = []
    for title, lines in sections:
        body = "".join(f"{printable(line)}\n" for line in lines or _NONE)
        blocks.append(f"{BOLD}{title}{PLAIN}\n\n{body}")
    return "\n".join(blocks).removesuffix("\n")
