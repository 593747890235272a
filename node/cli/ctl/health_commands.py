"""`rabbitmq-diagnostics` has these health checks, and `ping`. Source: management §1.11, §3.2, §3.4; RabbitMQ 3.10.8.

A failed check prints why on standard error and ends with 69. Most use the results of `status` and `cluster_status`.
"""

from collections.abc import Mapping
from typing import Any, Final

from node.cli.ctl import reports
from node.cli.ctl.command import Call, Command, CtlSession, Failed, NotHealthy, Refused, named
from node.cli.ctl.formats import Message, Outcome, Report
from node.io.protocol_names import protocol_named
from node.operations.operation import BOTH, DIAGNOSTICS, EX_DATAERR, QUEUES
from node.process import phases


def running_status(session: CtlSession) -> Mapping[str, Any]:
    """Return the node's `status`. Raises: ControlError unless its broker runs."""
    found: Mapping[str, Any] = session.ask("status")
    if not found.get("is_running"):
        raise phases.not_running(found.get("phase", "stopped"), found.get("waits_for", ""))
    return found


# --- is it there? ---


def _unit(call: Call) -> dict[str, Any]:
    unit = call.line.texts.get("unit", "gb")
    if unit.lower() not in reports.UNITS:
        raise Refused(f"unit '{unit}' is not supported. Please use one of: {', '.join(reports.UNITS)}")
    return {}


def _status(call: Call, result: Any) -> Outcome:
    return Report(result, reports.status(result, call.line.texts.get("unit", "gb").lower()))


def _state(call: Call, result: Any) -> str:
    if result.get("is_running"):
        return f"RabbitMQ on node {call.node} is fully booted and running"
    return f"RabbitMQ on node {call.node} is not running or has not fully booted yet (check with is_booting)"


def _check_running(call: Call, result: Any) -> Outcome:
    if not result.get("is_running"):
        raise NotHealthy(_state(call, result))
    return Message(_state(call, result))


def _is_running(call: Call, result: Any) -> Outcome:
    text = _state(call, result)
    return Report({"message": text, "result": bool(result.get("is_running"))}, text)


def _is_booting(call: Call, result: Any) -> Outcome:
    is_booting = bool(result.get("is_booting"))
    rest = (
        "is undergoing boot"
        if is_booting
        else "is fully booted (check with is_running), stopped or has not started booting yet"
    )
    text = f"RabbitMQ on node {call.node} {rest}"
    return Report({"message": text, "result": is_booting}, text)


def _pong(call: Call, result: Any) -> Outcome:
    return Message("Ping succeeded")


# --- alarms ---


class _Alarms:
    """Lines for the alarms of this node, and of the others."""

    def __init__(self, call: Call, session: CtlSession) -> None:
        running_status(session)
        alarms = session.ask("cluster_status")["alarms"]
        self.here = reports.alarms(each for each in alarms if each["node"] == call.node)
        self.elsewhere = reports.alarms(each for each in alarms if each["node"] != call.node)
        self.all = [*self.here, *self.elsewhere]


def _check_alarms(call: Call, session: CtlSession) -> Outcome:
    found = _Alarms(call, session)
    text = f"Node {call.node} reported no alarms, local or clusterwide"
    if not found.all:
        return Report({"result": "ok"}, text)
    value = {
        "result": "error",
        "local": found.here,
        "global": found.elsewhere,
        "message": f"Node {call.node} reported alarms",
    }
    raise NotHealthy("\n".join(found.all), value, has_title=False)


def _check_local_alarms(call: Call, session: CtlSession) -> Outcome:
    found = _Alarms(call, session)
    if not found.here:
        return Report({"result": "ok"}, f"Node {call.node} reported no local alarms")
    message = f"Node {call.node} reported local alarms"
    raise NotHealthy("\n".join(found.here), {"result": "error", "local": found.here, "message": message})


def _alarms(call: Call, session: CtlSession) -> Outcome:
    found = _Alarms(call, session)
    if not found.all:
        text = f"Node {call.node} reported no alarms, local or clusterwide"
        return Report({"result": "ok", "node": call.node, "alarms": []}, text)
    value = {
        "result": "ok",
        "local": found.here,
        "global": found.elsewhere,
        "message": f"Node {call.node} reported alarms",
    }
    return Report(value, "\n".join(found.all))


def _check_damage(call: Call, session: CtlSession) -> Outcome:
    files = running_status(session).get("damaged_files", [])
    if not files:
        return Report({"result": "ok"}, f"Node {call.node} reported no damaged files with messages")
    message = f"Node {call.node} reported damaged files with messages"
    raise NotHealthy("\n".join([message, *files]), {"result": "error", "files": files, "message": message})


# --- listeners ---


def _listeners(session: CtlSession) -> list[dict[str, Any]]:
    return list(running_status(session)["listeners"])


def _show_listeners(call: Call, session: CtlSession) -> Outcome:
    found = _listeners(session)
    if session.formatter in ("csv",):
        from node.cli.ctl.formats import Table

        return Table(("node", "protocol", "interface", "port", "purpose"), found)
    text = "\n".join(reports.listener(each, is_first=True) for each in found)
    return Report({"result": "ok", "node": call.node, "listeners": found}, text)


def _port(call: Call) -> dict[str, Any]:
    text = call.words[0]
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) < 1:
        raise Refused("Bad argument: Argument must be a positive integer", EX_DATAERR)
    return {}


def _check_port(call: Call, session: CtlSession) -> Outcome:
    found, port = _listeners(session), call.words[0]
    if any(each["port"] == int(port) for each in found):
        text = f"A listener for port {port} is running on node {call.node}."
        return Report({"result": "ok", "node": call.node, "port": port}, text)
    ports = [each["port"] for each in found]
    value = {"result": "error", "missing": port, "ports": ports, "listeners": found}
    raise NotHealthy(
        f"No listener for port {port} is active on node {call.node}. "
        f"Found listeners that use the following ports: {', '.join(map(str, sorted(set(ports))))}",
        value,
        has_title=False,
    )


def _check_protocol(call: Call, session: CtlSession) -> Outcome:
    found, given = _listeners(session), call.words[0]
    protocol = protocol_named(given)
    protocols = [each["protocol"] for each in found]
    if protocol in protocols:
        text = f"A listener for protocol {protocol} is running on node {call.node}."
        return Report({"result": "ok", "node": call.node, "protocol": protocol}, text)
    raise NotHealthy(
        f"No listener for protocol {given} is active on node {call.node}. "
        f"Found listeners for the following protocols: {', '.join(sorted(set(protocols)))}",
        {"result": "error", "missing": given, "protocols": protocols, "listeners": found},
    )


def _check_connectivity(call: Call, session: CtlSession) -> Outcome:
    found = _listeners(session)
    address = call.line.texts.get("address")
    failed = [each for each in found if not _takes_connections(each, address, call.timeout_s)]
    if failed:
        ports = ", ".join(str(each["port"]) for each in sorted(failed, key=lambda each: each["port"]))
        value = {"result": "error", "failures": failed}
        raise NotHealthy(
            f"Connection to ports of the following listeners on node {call.node} failed: \n{ports}",
            value,
            has_title=False,
        )
    ports = ", ".join(map(str, sorted({each["port"] for each in found})))
    return Report(
        {"result": "ok", "node": call.node, "listeners": found},
        f"Successfully connected to ports {ports} on node {call.node}.",
    )


def _takes_connections(listener: Mapping[str, Any], address: str | None, timeout_s: float) -> bool:
    import socket

    host = address or str(listener["interface"]).strip("[]")
    host = {"::": "localhost", "0.0.0.0": "127.0.0.1"}.get(host, host)
    try:
        with socket.create_connection((host, listener["port"]), timeout=min(timeout_s, 10.0)):
            return True
    except OSError:
        return False


# --- queues ---


def _critical(call: Call, result: Any) -> Outcome:
    if result.get("is_single"):
        rest = "seems to be the only one in a single node cluster, the check does not apply"
        return Report({"result": "ok", "message": f"Target node {rest}"}, f"Node {call.node} {rest}")
    queues, what = result["queues"], result["what"]
    if not queues:
        return Report({"result": "ok"}, f"Node {call.node} reported no {what}")
    lines = [f"Node {call.node} reported {result['bad']}:"]
    lines += [f"{each['readable_name']}" for each in queues]
    raise NotHealthy("\n".join(lines), {"result": "error", "queues": queues})


# --- certificates ---

_UNIT_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def _within(call: Call) -> dict[str, Any]:
    unit = call.line.texts.get("unit", "weeks").lower()
    if unit not in _UNIT_DAYS:
        raise Refused(f"\"unit '{unit}' is not supported. Please use one of: days, weeks, months, years\"")
    count = int(float(call.line.texts.get("within", "4")))
    return {"within_days": count * _UNIT_DAYS[unit]}


def _certificates(call: Call, result: Any) -> Outcome:
    expired = result["expiring"]
    texts = call.line.texts
    when = f"{int(float(texts.get('within', '4')))} {texts.get('unit', 'weeks').lower()}"
    if not expired:
        return Report({"result": "ok"}, f"No certificates are expiring within {when}.")
    blocks = []
    for each in expired:
        blocks.append(
            f"Certificate {each['certfile']} of the listener on {each['interface']}, port {each['port']}, "
            f"protocol {each['protocol']}: expires on {each['certfile_expires_on']}"
        )
    text = f"Some certificates are expiring within {when}:\n" + "\n".join(blocks)
    raise NotHealthy(text, {"result": "error", "expired": expired})


# --- the deprecated one ---

_DEPRECATED: Final = (
    "This command is DEPRECATED and will be removed in a future version.\n"
    "It performs intrusive, opinionated health checks and requires a fully booted node.\n"
    "Use one of the options covered in https://www.rabbitmq.com/monitoring.html#health-checks instead."
)


def _health(call: Call, session: CtlSession) -> Outcome:
    found = _Alarms(call, session)
    if found.here:
        text = f"Error: health check failed. Message: resource alarm(s) in effect: {', '.join(found.here)}"
        raise Failed(70, text)
    return Message("Health check passed")


_M: Final = "Monitoring, observability and health checks"


def _check(help_: str, banner: Any, perform: Any, **more: Any) -> Command:
    """Return a check; its usage and tools have defaults."""
    return Command(
        _M,
        help_,
        more.pop("usage", "[--timeout <timeout>]"),
        banner=banner,
        perform=perform,
        tools=more.pop("tools", DIAGNOSTICS),
        **more,
    )


HEALTH: Final[dict[str, Command]] = {
    "ping": Command(
        _M,
        "Checks that the node's process is up and answers",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will ping {call.node}. This only checks if the OS process is running and answers. "
            f"Timeout: {call.timeout_s * 1000:.0f} ms."
        ),
        present=_pong,
        tools=BOTH,
    ),
    "status": Command(
        _M,
        "Displays status of a node",
        "[--unit <unit>] [--timeout <timeout>]",
        options=frozenset({"unit"}),
        banner=lambda call: f"Status of node {call.node} ...",
        request=_unit,
        present=_status,
        tools=BOTH,
    ),
    "check_running": Command(
        _M,
        "Checks that the broker runs",
        "[--timeout <timeout>]",
        banner=lambda call: f"Checking if RabbitMQ is running on node {call.node} ...",
        operation="status",
        present=_check_running,
        tools=DIAGNOSTICS,
    ),
    "is_running": Command(
        _M,
        "Tells whether the broker runs",
        "[--timeout <timeout>]",
        banner=lambda call: f"Asking node {call.node} for its status ...",
        operation="status",
        present=_is_running,
        tools=DIAGNOSTICS,
    ),
    "is_booting": Command(
        _M,
        "Tells whether the broker is being started",
        "[--timeout <timeout>]",
        banner=lambda call: f"Asking node {call.node} for its boot status ...",
        operation="status",
        present=_is_booting,
        tools=DIAGNOSTICS,
    ),
    "alarms": _check(
        "Lists alarms of memory and disk in the whole cluster",
        lambda call: f"Asking node {call.node} to report any known resource alarms ...",
        _alarms,
    ),
    "check_alarms": _check(
        "Checks that no node is short of memory or disk",
        lambda call: f"Asking node {call.node} to report any local resource alarms ...",
        _check_alarms,
    ),
    "check_local_alarms": _check(
        "Checks that this node is not short of memory or disk",
        lambda call: f"Asking node {call.node} to report any local resource alarms ...",
        _check_local_alarms,
    ),
    "check_store_damage": _check(
        "Checks that no file with messages of this node is known to be damaged",
        lambda call: f"Asking node {call.node} for damaged files with messages ...",
        _check_damage,
    ),
    "check_certificate_expiration": Command(
        _M,
        "Checks that no certificate of a TLS listener expires soon",
        "[--within <period>] [--unit <days | weeks | months | years>]",
        options=frozenset({"within", "unit"}),
        banner=lambda call: f"Checking certificate expiration on node {call.node} ...",
        request=_within,
        present=_certificates,
        tools=DIAGNOSTICS,
    ),
    "check_if_node_is_mirror_sync_critical": Command(
        _M,
        "Checks that no mirrored queue would lose messages if this node stopped",
        banner=lambda call: (
            f"Checking if node {call.node} is critical for data safety of any classic mirrored queues ..."
        ),
        present=_critical,
        tools=DIAGNOSTICS | QUEUES,
    ),
    "check_if_node_is_quorum_critical": Command(
        _M,
        "Checks that no quorum queue would lose its quorum if this node stopped",
        banner=lambda call: f"Checking if node {call.node} is critical for quorum of any quorum queues ...",
        present=_critical,
        tools=DIAGNOSTICS | QUEUES,
    ),
    "check_port_connectivity": _check(
        "Checks that each listener takes connections",
        lambda call: f"Testing TCP connections to all active listeners on node {call.node} ...",
        _check_connectivity,
        usage="[--address <ip_address>] [--timeout <timeout>]",
        options=frozenset({"address"}),
    ),
    "check_port_listener": _check(
        "Checks that there is a listener on a port",
        lambda call: f"Asking node {call.node} if there's an active listener on port {call.words[0]} ...",
        _check_port,
        usage="<port>",
        arguments=(1, 1),
        request=_port,
    ),
    "check_protocol_listener": _check(
        "Checks that there is a listener for a protocol",
        lambda call: (
            f"Asking node {call.node} if there's an active listener for protocol {call.words[0]} ..."
        ),
        _check_protocol,
        usage="<protocol>",
        arguments=(1, 1),
        request=named("protocol"),
    ),
    "listeners": _check(
        "Lists where the node accepts connections",
        lambda call: f"Asking node {call.node} to report its protocol listeners ...",
        _show_listeners,
    ),
    "node_health_check": Command(
        "Deprecated",
        "Checks the node: use one of the other checks",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"{_DEPRECATED}\nTimeout: {call.timeout_s:.0f} seconds ...\nChecking health of node {call.node} ..."
        ),
        perform=_health,
        timeout_s=70.0,
        tools=BOTH,
    ),
}
