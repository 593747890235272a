"""This table has the commands about nodes and clusters: start and stop, join and leave, status, maintenance mode.

Source: management §3.2, §3.4, and RabbitMQ 3.10.8's output.
"""

import time
from typing import Any, Final

from node.cli.ctl import reports
from node.cli.ctl.command import Call, Command, CtlSession, Failed, NotHealthy, Refused
from node.cli.ctl.formats import Done, Message, Outcome, Report
from node.cli.ctl.processes import POLL_S, runs
from node.io.control import ControlError
from node.operations.operation import BOTH, EX_DATAERR, EX_TEMPFAIL, LONG_TIMEOUT_S, PLUGINS, QUEUES, UPGRADE
from node.version import COMPATIBLE_VERSION, VERSION

# --- arguments ---


def _full_name(call: Call, text: str) -> str:
    """Return a node's name with its host; without one, with the host of the command's node."""
    return text if "@" in text else f"{text}@{call.node.partition('@')[2]}"


def _node_type(is_known: bool, name: str) -> str:
    if not is_known:
        raise Refused("Bad argument: The node type must be either disc or ram.", EX_DATAERR)
    return name


def _join(call: Call) -> dict[str, Any]:
    is_ram, is_disc = call.line.is_set("ram"), call.line.is_set("disc")
    type_ = _node_type(not (is_ram and is_disc), "ram" if is_ram else "disc")
    name, _, port = call.words[0].partition(":")
    node = _full_name(call, name)
    if port and not port.isdecimal():
        raise Refused("Bad argument: the node's address is NAME@HOST:PORT", EX_DATAERR)
    address = f"{node.partition('@')[2]}:{port}" if port else None
    return {"node": node, "address": address, "type": type_}


def _forget(call: Call) -> dict[str, Any]:
    return {"node": _full_name(call, call.words[0])}


def _change_type(call: Call) -> dict[str, Any]:
    name = {"disk": "disc"}.get(call.words[0], call.words[0])
    return {"type": _node_type(name in ("disc", "ram"), name)}


def _count(call: Call) -> dict[str, Any]:
    text = call.words[0]
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) < 10 or int(text) < 1:
        raise Refused("Bad argument: Argument must be a positive integer", EX_DATAERR)
    return {"count": int(text)}


# --- outcomes ---


def _cluster_status(call: Call, result: Any) -> Outcome:
    return Report(result, reports.cluster_status(result))


def _joined(call: Call, result: Any) -> Outcome:
    if result.get("already_member"):
        return Message("The node is already a member of this cluster")
    return Done()


def _version(call: Call, result: Any) -> Outcome:
    return Report({"version": COMPATIBLE_VERSION, "fluffle_version": VERSION}, COMPATIBLE_VERSION)


def _awaited(call: Call, result: Any) -> Outcome:
    if result.get("is_single") and not (call.line.is_set("quiet") or call.line.is_set("silent")):
        return Message(
            "Target node seems to be the only one in a single node cluster, the command does not apply"
        )
    return Done()


def _upgraded(call: Call, result: Any) -> Outcome:
    return Report({"node": call.node, "result": "ok", "value": result["nodes"]}, "")


# --- wait ---


def _rotate_logs(call: Call, session: CtlSession) -> Outcome:
    raise NotHealthy("This command does not rotate logs anymore [deprecated]")


def _check_wait(call: Call) -> dict[str, Any]:
    if "pid" in call.line.texts and call.words:
        raise Refused('"Cannot specify both pid and pidfile"')
    if "pid" not in call.line.texts and not call.words:
        raise Refused('"No pid or pidfile specified"')
    return {}


def _wait(call: Call, session: CtlSession) -> Outcome:
    """Wait as RabbitMQ does: for the file, then until the process answers, then until its broker runs."""
    _check_wait(call)
    deadline = time.monotonic() + call.timeout_s

    def pause() -> None:
        if time.monotonic() >= deadline:
            used_ms = f"Timeout value used: {call.timeout_s * 1000:.0f}"
            text = f"Error: operation wait on node {call.node} timed out. {used_ms}"
            raise Failed(EX_TEMPFAIL, text, has_title=False)
        time.sleep(POLL_S)

    text = call.line.texts.get("pid")
    if text is None:
        session.say(f"Waiting for pid file '{call.words[0]}' to appear")
        while (pid := _pid_in(call.words[0])) is None:
            pause()
        session.say(f"pid is {pid}")
    else:
        pid = int(text)
    session.say(f"Waiting for erlang distribution on node '{call.node}' while OS process '{pid}' is running")
    is_told = False
    while True:
        if not runs(pid):
            raise NotHealthy("process_not_running")
        try:
            is_running = session.ask("status", timeout_s=max(deadline - time.monotonic(), POLL_S))[
                "is_running"
            ]
        except (ControlError, NotHealthy):
            pause()
            continue
        if not is_told:
            session.say(f"Waiting for applications 'rabbit_and_plugins' to start on node '{call.node}'")
            is_told = True
        if is_running:
            session.say(f"Applications 'rabbit_and_plugins' are running on node '{call.node}'")
            return Done()
        pause()


def _pid_in(path: str) -> int | None:
    try:
        with open(path) as file:
            text = file.read(20).strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


# --- the table ---

_OFFLINE: Final = frozenset({"offline"})
_N: Final = "Nodes"
_C: Final = "Cluster"
_U: Final = "Upgrade"
_O: Final = "Operations"

NODES: Final[dict[str, Command]] = {
    "help": Command(
        "Help",
        "Displays usage information for a command",
        "[<command>]",
        (0, 1),
        tools=BOTH | PLUGINS | UPGRADE | QUEUES,
        is_local=True,
    ),
    "version": Command(
        "Help", "Displays CLI tools version", present=_version, tools=BOTH | PLUGINS, is_local=True
    ),
    "await_startup": Command(
        _N,
        "Waits for the RabbitMQ application to start on the target node",
        "[--timeout <timeout>]",
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
    "reset": Command(
        _N,
        "Instructs a RabbitMQ node to leave the cluster and return to its virgin state",
        "[--offline]",
        options=_OFFLINE,
        banner=lambda call: f"Resetting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
    ),
    "shutdown": Command(
        _N,
        "Stops the node and its process, and waits until it has ended",
        "[--wait] [--timeout <timeout>]",
        options=frozenset({"wait"}),
        timeout_s=LONG_TIMEOUT_S,
        operation="stop",
    ),
    "start_app": Command(
        _N,
        "Starts the RabbitMQ application on a node that runs without it",
        banner=lambda call: f"Starting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
    "stop": Command(
        _N,
        "Stops the node and its process",
        "[--idempotent] [<pidfile>]",
        (0, 1),
        options=frozenset({"idempotent"}),
        banner=lambda call: f"Stopping and halting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
    "stop_app": Command(
        _N,
        "Stops the RabbitMQ application, leaving the process running",
        banner=lambda call: f"Stopping rabbit application on node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
    "await_online_nodes": Command(
        _C,
        "Waits for <count> nodes to join the cluster",
        "<count> [--timeout <timeout>]",
        (1, 1),
        banner=lambda call: (
            f"Will wait for at least {call.words[0]} nodes to join the cluster of {call.node}. "
            f"Timeout: {call.timeout_s:.0f} seconds."
        ),
        request=_count,
        timeout_s=LONG_TIMEOUT_S,
        is_slow=True,
    ),
    "change_cluster_node_type": Command(
        _C,
        "Changes the type of the cluster node",
        "<disc | ram>",
        (1, 1),
        banner=lambda call: f"Turning {call.node} into a {_change_type(call)['type']} node",
        request=_change_type,
    ),
    "cluster_status": Command(
        _C,
        "Displays all the nodes in the cluster grouped by node type, together with the currently running nodes",
        "[--timeout <timeout>]",
        banner=lambda call: f"Cluster status of node {call.node} ...",
        present=_cluster_status,
        tools=BOTH,
    ),
    "force_reset": Command(
        _C,
        "Forcefully returns a RabbitMQ node to its virgin state",
        "[--offline]",
        options=_OFFLINE,
        banner=lambda call: f"Forcefully resetting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
    ),
    "forget_cluster_node": Command(
        _C,
        "Removes a node from the cluster",
        "[--offline] <existing_cluster_member_node>",
        (1, 1),
        _OFFLINE,
        banner=lambda call: f"Removing node {_forget(call)['node']} from the cluster",
        request=_forget,
    ),
    "join_cluster": Command(
        _C,
        "Instructs the node to become a member of the cluster that the specified node is in",
        "[--disc|--ram] <existing_cluster_member>",
        (1, 1),
        frozenset({"disc", "ram"}),
        banner=lambda call: f"Clustering node {call.node} with {_join(call)['node']}",
        request=_join,
        present=_joined,
        timeout_s=LONG_TIMEOUT_S,
    ),
    "set_cluster_name": Command(
        _C,
        "Sets the cluster name",
        "<name>",
        (1, 1),
        banner=lambda call: f"Setting cluster name to {call.words[0]} ...",
        request=lambda call: {"name": call.words[0]},
    ),
    "drain": Command(
        _U,
        "Puts the node in maintenance mode. Such nodes will not serve any client traffic",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will put node {call.node} into maintenance mode. "
            "The node will no longer serve any client traffic!"
        ),
        timeout_s=LONG_TIMEOUT_S,
        tools=UPGRADE,
    ),
    "revive": Command(
        _U,
        "Puts the node out of maintenance and into regular operating mode",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will put node {call.node} back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas."
        ),
        tools=UPGRADE,
    ),
    "suspend_listeners": Command(
        _O,
        "Suspends client connection listeners so that no new client connections are accepted",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will suspend client connection listeners on node {call.node}. "
            "The node will no longer accept client connections!"
        ),
    ),
    "resume_listeners": Command(
        _O,
        "Resumes client connection listeners making them accept client connections again",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will resume client connection listeners on node {call.node}. "
            "The node will now accept client connections"
        ),
    ),
    "await_online_synchronized_mirror": Command(
        _U,
        "Waits until each mirrored queue whose master is here has a synchronised mirror elsewhere",
        "[--timeout <timeout>]",
        banner=lambda call: (
            "Will wait for a synchronised mirror be online for all classic mirrored queues "
            f"for {call.timeout_s:.0f} seconds..."
        ),
        present=_awaited,
        timeout_s=120.0,
        tools=UPGRADE,
        is_slow=True,
    ),
    "await_online_quorum_plus_one": Command(
        _U,
        "Waits until each quorum queue with a copy here has one copy more online than it needs",
        "[--timeout <timeout>]",
        banner=lambda call: (
            "Will wait for a quorum + 1 of nodes to be online for all quorum queues "
            f"for {call.timeout_s:.0f} seconds..."
        ),
        present=_awaited,
        timeout_s=120.0,
        tools=UPGRADE,
        is_slow=True,
    ),
    "post_upgrade": Command(
        _U,
        "Does the work that follows an upgrade: spreads the masters of mirrored queues",
        banner=lambda call: "Executing post upgrade tasks...\nRebalancing queue masters...",
        request=lambda call: {"type": "all", "vhost_pattern": ".*", "queue_pattern": ".*"},
        operation="rebalance",
        present=_upgraded,
        timeout_s=LONG_TIMEOUT_S,
        tools=UPGRADE,
        is_slow=True,
    ),
    "rotate_logs": Command(
        _N, "Does nothing: files are rotated by the node itself, or by logrotate", perform=_rotate_logs
    ),
    "wait": Command(
        _N,
        "Waits for the start of a node by looking at its process id, or at the file that holds it",
        "[<pidfile>] [--pid|-P <pid>]",
        (0, 1),
        frozenset({"pid"}),
        request=_check_wait,
        perform=_wait,
        is_local=True,
        timeout_s=10.0,
        tools=BOTH,
        shorts={"P": "pid"},
    ),
}
