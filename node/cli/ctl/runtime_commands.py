"""This table has the commands that show a node's versions, memory, log and configuration; and `report`.

Source: management §3.2, §3.4; RabbitMQ 3.10.8's output.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from node.cli.ctl.command import Call, Command, CtlSession, Failed, Refused, commands
from node.cli.ctl.formats import Done, Message, Outcome, Report, Table, erlang_pretty
from node.cli.ctl.health_commands import running_status
from node.cli.ctl.operation_commands import banner_of_disk, banner_of_watermark, disk_limit, level, watermark
from node.cli.ctl.reports import UNITS
from node.operations import runtime
from node.operations.operation import BOTH, DIAGNOSTICS, LONG_TIMEOUT_S, PLUGINS, QUEUES

# --- versions ---


def _server_version(call: Call, result: Any) -> Outcome:
    return Report({"result": "ok", "value": result["rabbitmq_version"]}, result["rabbitmq_version"])


def _erlang_version(call: Call, result: Any) -> Outcome:
    """Report the Erlang version of the RabbitMQ that we are compatible with, and the Python that runs."""
    text = f"Erlang/OTP {result['erlang_version']}"
    if call.line.is_set("details"):
        text += f" (Python {result['python_version']})"
    return Report({"result": "ok", "value": text}, text)


# --- memory ---


def _unit(call: Call) -> dict[str, Any]:
    unit = call.line.texts.get("unit", "gb").lower()
    if unit not in ("bytes", "mb", "gb"):
        raise Refused(f"\"unit '{unit}' is not supported. Please use one of: bytes, mb, gb\"")
    return {}


def _memory(call: Call, session: CtlSession) -> Outcome:
    running_status(session)
    unit = call.line.texts.get("unit", "gb").lower()
    parts: dict[str, int] = session.ask("memory_breakdown")["memory"]
    total = sum(parts.values()) or 1
    ordered = sorted(parts.items(), key=lambda item: (-item[1], item[0]))
    value = {name: {"bytes": size, "percentage": round(size * 100 / total, 2)} for name, size in ordered}
    if session.formatter == "csv":
        flat = {f"{name}.{key}": each[key] for name, each in value.items() for key in ("bytes", "percentage")}
        return Table(tuple(flat), [flat])
    lines = []
    for name, size in ordered:
        amount = size if unit == "bytes" else round(size / UNITS[unit], 4)
        lines.append(f"{name}: {amount} {unit} ({value[name]['percentage']}%)")
    return Report(value, "\n".join([*lines, ""]), json_text=_in_order(value))


def _in_order(value: Mapping[str, Any]) -> str:
    import json

    return json.dumps(value, separators=(",", ":"))


# --- log ---


def _locations(call: Call, result: Any) -> Outcome:
    files = result["log_files"]
    paths = files if call.line.is_set("all") else [each for each in files if not each.startswith("<")][:1]
    paths = paths or files[:1]
    return Report({"result": "ok", "node_name": call.node, "paths": paths}, "\n".join(paths))


def _number(call: Call) -> int:
    return int(float(call.line.texts.get("number", "50")))


def _tail(call: Call) -> dict[str, Any]:
    return {"number": _number(call)}


def _banner_of_tail(call: Call) -> str:
    return f"Last {_number(call)} log lines on node {call.node} ..."


def _tailed(call: Call, result: Any) -> Outcome:
    lines = result["lines"]
    return Report({"result": "ok", "lines": lines}, "\n".join(lines), is_blank=not lines)


POLL_S: Final = 0.25
"""The interval at which a stream is asked for more lines."""


def _stream(call: Call, session: CtlSession, operation: str, arguments: dict[str, Any]) -> Outcome:
    """Print lines as they arrive, until the duration is over or the user presses Ctrl-C."""
    duration = call.line.texts.get("duration")
    deadline = None if duration is None else time.monotonic() + float(duration)
    after: Any = None
    while deadline is None or time.monotonic() < deadline:
        found = session.ask(operation, {**arguments, "after": after}, timeout_s=call.timeout_s)
        after = found["after"]
        for line in found["lines"]:
            print(line)
        if found["lines"]:
            print(end="", flush=True)
        time.sleep(POLL_S)
    return Done()


def _log_stream(call: Call, session: CtlSession) -> Outcome:
    duration = call.line.texts.get("duration")
    for_ = "indefinitely" if duration is None else f"for {duration} seconds"
    session.say(f"Streaming logs from node {call.node} {for_} ...")
    return _stream(call, session, "log_stream", {})


# --- what it was started with ---


def _environment(call: Call, result: Any) -> Outcome:
    found = result["environment"]
    return Report(found, erlang_pretty(found))


def _variables(call: Call, session: CtlSession) -> Outcome:
    running_status(session)
    found: dict[str, str] = session.ask("os_env")["variables"]
    if session.formatter == "csv":
        return Table(
            ("variable", "value"), [{"variable": key, "value": value} for key, value in found.items()]
        )
    text = "\n".join(f"{key}={value}" for key, value in found.items())
    return Report({"result": "ok", "node": call.node, "variables": found}, text, is_blank=not found)


def _command_line(call: Call, result: Any) -> Outcome:
    words = result["arguments"]
    return Report({"result": "ok", "node": call.node, "arguments": words}, " ".join(words))


# --- TLS ---


def _tls_versions(call: Call, session: CtlSession) -> Outcome:
    versions = session.ask("tls")["versions"]
    return Report({"versions": versions}, "\n".join(versions))


def _suites(call: Call, session: CtlSession) -> Outcome:
    suites = session.ask("tls")["suites"]
    return Report({"format": "openssl", "cipher_suites": suites}, "\n".join(suites))


def _certificates(call: Call, result: Any) -> Outcome:
    found = result["certificates"]
    blocks = [
        f"{each['interface']}, port {each['port']}, protocol {each['protocol']}: {each['certfile']}, "
        f"expires on {each['certfile_expires_on']}"
        for each in found
    ]
    return Report({"result": "ok", "node": call.node, "certificates": found}, "\n".join(blocks) or "(none)")


# --- network ---


def _family(call: Call) -> dict[str, Any]:
    family = call.line.texts.get("address-family", "IPv4").lower()
    if family not in ("ipv4", "ipv6"):
        raise Refused(f"Bad argument: unknown address family '{family}': use ipv4 or ipv6", 65)
    return {"hostname": call.words[0], "family": family}


def _resolved(call: Call, result: Any) -> Outcome:
    if not result["addresses"]:
        raise Failed(65, "Hostname does not resolve (resolution failed with an nxdomain)")
    return Report({"result": "ok", "addresses": result["addresses"]}, "\n".join(result["addresses"]))


def _banner_of_resolving(call: Call) -> str:
    is_6 = call.line.texts.get("address-family", "IPv4").lower() == "ipv6"
    kind = "IPv6" if is_6 else "IPv4"
    return f"Asking node {call.node} to resolve hostname {call.words[0]} to {kind} addresses..."


def _peers(call: Call, session: CtlSession) -> Outcome:
    found = session.ask("discover_peers")["peers"]
    return Report({"result": "ok", "peers": found}, "\n".join(found) or "No peers discovered")


# --- quorum queues ---


def _members(call: Call, result: Any) -> Outcome:
    columns = ("Node Name", "Raft State", "Log Index", "Commit Index", "Snapshot Index", "Term")
    return Table(columns, result["rows"])


# --- report ---

_EACH: Final = ("list_queues", "list_exchanges", "list_bindings", "list_permissions", "list_policies")
_REPORTED: Final = ("status", "cluster_status", "environment", "list_connections", "list_channels")


def _report(call: Call, session: CtlSession) -> Outcome:
    """Print the outcomes of several commands, one after the other, as RabbitMQ does."""
    from node.cli.ctl.commands import COMMANDS
    from node.cli.ctl.formats import Options, render

    running_status(session)
    session.say(f"Reporting server status of node {call.node} ...")
    vhosts = session.ask("list_vhosts", {"columns": ["name"]})["rows"]
    steps = [(name, call.vhost) for name in (*_REPORTED, "command_line_arguments", "os_env")]
    steps += [(name, each["name"]) for each in vhosts for name in (*_EACH, "list_parameters")]
    for name, vhost in [*steps, ("list_global_parameters", call.vhost)]:
        command = COMMANDS[name]
        one = call._replace(words=[], line=call.line.in_vhost(vhost))
        print()
        if command.banner is not None:
            print(command.banner(one))
        if command.perform is not None:
            outcome = command.perform(one, session)
        else:
            outcome = command.present(one, session.ask(command.operation or name, command.request(one)))
        print(render(outcome, "table", Options(call.node)), end="", flush=True)
    return Done()


# --- autocomplete ---


def _complete(call: Call, session: CtlSession) -> Outcome:
    from node.cli.ctl.commands import COMMANDS

    start = call.words[0] if call.words else ""
    return Message("\n".join(sorted(name for name in COMMANDS if name.startswith(start))))


_M: Final = "Monitoring, observability and health checks"
_C: Final = "Configuration and Environment"

RUNTIME: Final = {
    **commands(
        runtime.RUNTIME,
        certificates={"present": _certificates},
        command_line_arguments={"present": _command_line},
        discover_peers={"perform": _peers},
        environment={"present": _environment},
        log_tail={"request": _tail, "present": _tailed, "banner": _banner_of_tail, "shorts": {"N": "number"}},
        memory_breakdown={"options": frozenset({"unit"}), "request": _unit, "perform": _memory},
        os_env={"perform": _variables},
        quorum_status={"present": _members, "formatter": "pretty_table"},
        resolve_hostname={
            "options": frozenset({"address-family"}),
            "banner": _banner_of_resolving,
            "request": _family,
            "present": _resolved,
        },
        set_disk_free_limit={
            "arguments": (1, 2),
            "options": frozenset(),
            "banner": banner_of_disk,
            "request": disk_limit,
        },
        set_log_level={"request": level},
        set_vm_memory_high_watermark={
            "arguments": (1, 2),
            "options": frozenset(),
            "banner": banner_of_watermark,
            "request": watermark,
        },
    ),
    "autocomplete": Command(
        "Help",
        "Lists commands that begin with these characters",
        "[<string>]",
        (0, 1),
        perform=_complete,
        tools=BOTH | PLUGINS | QUEUES,
        is_local=True,
    ),
    "server_version": Command(
        _M,
        "Displays the version of RabbitMQ that the node is compatible with",
        banner=lambda call: f"Asking node {call.node} for its RabbitMQ version...",
        operation="status",
        present=_server_version,
        tools=DIAGNOSTICS,
    ),
    "erlang_version": Command(
        _M,
        "Displays the version of Erlang that clients see; the node runs on Python",
        "[--details] [--offline]",
        options=frozenset({"details", "offline"}),
        banner=lambda call: f"Asking node {call.node} for its Erlang/OTP version...",
        operation="status",
        present=_erlang_version,
        tools=DIAGNOSTICS,
    ),
    "log_location": Command(
        _C,
        "Shows where the node's log is",
        "[--all|-a] [--timeout <timeout>]",
        options=frozenset({"all"}),
        banner=lambda call: f"Log file location(s) on node {call.node} ...",
        operation="status",
        present=_locations,
        tools=DIAGNOSTICS,
        shorts={"a": "all"},
    ),
    "log_tail_stream": Command(
        _M,
        "Prints lines of the node's log as they are written",
        "[--duration|-d <seconds>] [--timeout <timeout>]",
        options=frozenset({"duration"}),
        perform=_log_stream,
        tools=DIAGNOSTICS,
        shorts={"d": "duration"},
    ),
    "tls_versions": Command(
        _M,
        "Lists TLS versions that the node's OpenSSL has",
        banner=lambda call: "Listing all TLS versions supported by the runtime...",
        perform=_tls_versions,
        tools=DIAGNOSTICS,
    ),
    "cipher_suites": Command(
        _M,
        "Lists cipher suites that the node's OpenSSL has",
        "[--format <openssl>] [--all]",
        options=frozenset({"format", "all"}),
        banner=lambda call: "Listing available cipher suites in OpenSSL format",
        perform=_suites,
        tools=DIAGNOSTICS,
    ),
    "report": Command(
        _M,
        "Prints status, lists and configuration, for a request for support",
        "[--timeout <timeout>]",
        perform=_report,
        timeout_s=LONG_TIMEOUT_S,
        tools=BOTH,
    ),
}
