"""The commands of `fluffle ctl`: names, arguments, banners and outcomes, RabbitMQ's.

Each command is one row of `COMMANDS` and asks the node for one operation. Source: management §3.2, §3.3, and
RabbitMQ 3.10.8's output.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from node.cli.ctl import reports
from node.cli.ctl.arguments import Line
from node.cli.ctl.formats import Done, Message, Outcome, Report, Table
from node.version import COMPATIBLE_VERSION, VERSION

EX_USAGE: Final = 64
EX_DATAERR: Final = 65

LONG_TIMEOUT_S: Final = 300.0
"""For what RabbitMQ waits without an end, or five minutes."""
TIMEOUT_S: Final = 60.0


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Refused(Exception):
    """The command line makes no sense: `text` says why, and `exit_code` which kind of nonsense it is."""

    def __init__(self, text: str, exit_code: int = EX_USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


class Call(NamedTuple):
    """One use of a command."""

    node: str
    """The node's full name."""
    words: list[str]
    """Its arguments."""
    line: Line
    timeout_s: float

    @property
    def vhost(self) -> str:
        """Which virtual host is meant."""
        return self.line.texts.get("vhost", "/")


def _nothing(call: Call) -> dict[str, Any]:
    return {}


def _done(call: Call, result: Any) -> Outcome:
    return Done()


class Command(NamedTuple):
    """One command."""

    section: str
    help: str
    usage: str = ""
    """What may stand behind its name."""
    arguments: tuple[int, int | None] = (0, 0)
    """How many at least and at most; None: any number."""
    options: frozenset[str] = frozenset()
    """Its own, besides those of all commands."""
    banner: Callable[[Call], str] | None = None
    request: Callable[[Call], dict[str, Any]] = _nothing
    """The operation's arguments. Raises: Refused."""
    present: Callable[[Call, Any], Outcome] = _done
    timeout_s: float = TIMEOUT_S
    is_slow: bool = False
    """Whether the banner is printed before the answer is there."""


# --- arguments ---


def _full_name(call: Call, text: str) -> str:
    """A node's name with its host: this node's, if none is given."""
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


QUEUE_COLUMNS: Final = _words(
    """
    arguments auto_delete consumer_capacity consumer_utilisation consumers disk_reads disk_writes durable
    effective_policy_definition exclusive exclusive_consumer_pid exclusive_consumer_tag head_message_timestamp
    home leader members memory message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready
    message_bytes_unacknowledged messages messages_persistent messages_ram messages_ready messages_ready_ram
    messages_unacknowledged messages_unacknowledged_ram mirror_pids name online operator_policy owner_pid pid
    policy slave_pids state synchronised_mirror_pids synchronised_slave_pids type
    """
)
"""RabbitMQ's, and `home`: the node where the queue lives. What a node doesn't tell stays empty."""


def _queue_columns(call: Call) -> tuple[str, ...]:
    names = [name for word in call.words for name in word.split(",") if name]
    unknown = [name for name in names if name not in QUEUE_COLUMNS]
    if unknown:
        raise Refused(f"Info key(s) {','.join(unknown)} are not supported")
    return tuple(dict.fromkeys(names)) or ("name", "messages")


def _queues(call: Call) -> dict[str, Any]:
    _queue_columns(call)
    given = [name for name in ("online", "offline", "local") if call.line.is_set(name)]
    if len(given) > 1:
        raise Refused("only one of --online, --offline and --local may be given")
    return {"vhost": call.vhost, "which": given[0] if given else "all"}


def _unit(call: Call) -> dict[str, Any]:
    unit = call.line.texts.get("unit", "gb")
    if unit.lower() not in reports.UNITS:
        raise Refused(f"unit '{unit}' is not supported. Please use one of: {', '.join(reports.UNITS)}")
    return {}


# --- outcomes ---


def _pong(call: Call, result: Any) -> Outcome:
    return Message("Ping succeeded")


def _status(call: Call, result: Any) -> Outcome:
    return Report(result, reports.status(result, call.line.texts.get("unit", "gb").lower()))


def _cluster_status(call: Call, result: Any) -> Outcome:
    return Report(result, reports.cluster_status(result))


def _joined(call: Call, result: Any) -> Outcome:
    if result.get("already_member"):
        return Message("The node is already a member of this cluster")
    return Done()


def _version(call: Call, result: Any) -> Outcome:
    return Report({"version": COMPATIBLE_VERSION, "fluffle_version": VERSION}, COMPATIBLE_VERSION)


def _listed(call: Call, result: Any) -> Outcome:
    return Table(_queue_columns(call), [_queue_row(queue) for queue in result["queues"]])


def _queue_row(queue: Mapping[str, Any]) -> dict[str, Any]:
    return {"policy": "", **queue}


def _running(call: Call, result: Any) -> Outcome:
    if not result.get("is_running"):
        state = "booting" if result.get("is_booting") else "not running"
        raise NotHealthy(f"RabbitMQ on node {call.node} is {state}")
    return Message(f"RabbitMQ on node {call.node} is fully booted and running")


class NotHealthy(Exception):
    """A check failed; the text says how. Exit code 69."""


# --- the table ---

_N: Final = "Nodes"
_C: Final = "Cluster"
_M: Final = "Monitoring, observability and health checks"

COMMANDS: Final[dict[str, Command]] = {
    "help": Command("Help", "Displays usage information for a command", "[<command>]", (0, 1)),
    "version": Command("Help", "Displays CLI tools version", present=_version),
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
        banner=lambda call: f"Resetting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
    ),
    "shutdown": Command(
        _N,
        "Stops the node and its process, and waits until it has ended",
        "[--wait] [--timeout <timeout>]",
        options=frozenset({"wait"}),
        timeout_s=LONG_TIMEOUT_S,
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
        "[--idempotent]",
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
    ),
    "force_reset": Command(
        _C,
        "Forcefully returns a RabbitMQ node to its virgin state",
        banner=lambda call: f"Forcefully resetting node {call.node} ...",
        timeout_s=LONG_TIMEOUT_S,
    ),
    "forget_cluster_node": Command(
        _C,
        "Removes a node from the cluster",
        "[--offline] <existing_cluster_member_node>",
        (1, 1),
        frozenset({"offline"}),
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
    "list_queues": Command(
        _M,
        "Lists queues and their properties",
        "[--vhost <vhost>] [--online] [--offline] [--local] [--no-table-headers] [<column>, ...]"
        " [--timeout <timeout>]",
        (0, None),
        frozenset({"online", "offline", "local"}),
        banner=lambda call: (
            f"Timeout: {call.timeout_s:.1f} seconds ...\nListing queues for vhost {call.vhost} ..."
        ),
        request=_queues,
        present=_listed,
    ),
    "ping": Command(
        _M,
        "Checks that the node's process is up and answers",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will ping {call.node}. This only checks if the OS process is running and answers. "
            f"Timeout: {call.timeout_s * 1000:.0f} ms."
        ),
        present=_pong,
    ),
    "status": Command(
        _M,
        "Displays status of a node",
        "[--unit <unit>] [--timeout <timeout>]",
        options=frozenset({"unit"}),
        banner=lambda call: f"Status of node {call.node} ...",
        request=_unit,
        present=_status,
    ),
    "check_running": Command(
        _M,
        "Health check that exits with a non-zero code if the RabbitMQ app on the target node is not running",
        "[--timeout <timeout>]",
        banner=lambda call: f"Checking if RabbitMQ is running on node {call.node} ...",
        present=_running,
    ),
    "is_running": Command(
        _M,
        "Queries for the status of a node: whether it is fully booted and running",
        "[--timeout <timeout>]",
        banner=lambda call: f"Asking node {call.node} for its status ...",
        present=_running,
    ),
    "drain": Command(
        "Upgrade",
        "Puts the node in maintenance mode. Such nodes will not serve any client traffic",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will put node {call.node} into maintenance mode. "
            "The node will no longer serve any client traffic!"
        ),
        timeout_s=LONG_TIMEOUT_S,
    ),
    "revive": Command(
        "Upgrade",
        "Puts the node out of maintenance and into regular operating mode",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will put node {call.node} back into regular operating mode. "
            "The node will again serve client traffic and host primary queue replicas."
        ),
    ),
    "suspend_listeners": Command(
        "Upgrade",
        "Suspends client connection listeners so that no new client connections are accepted",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will suspend client connection listeners on node {call.node}. "
            "The node will no longer accept client connections!"
        ),
    ),
    "resume_listeners": Command(
        "Upgrade",
        "Resumes client connection listeners making them accept client connections again",
        "[--timeout <timeout>]",
        banner=lambda call: (
            f"Will resume client connection listeners on node {call.node}. "
            "The node will now accept client connections"
        ),
    ),
}

OPERATIONS: Final = {"shutdown": "stop", "check_running": "status", "is_running": "status"}
"""What a command asks for when that is not its own name."""

ERLANG_ONLY: Final = _words(
    """
    environment erlang_cookie_hash erlang_cookie_sources erlang_version eval eval_file exec force_gc maybe_stuck
    observer remote_shell runtime_thread_stats
    """
)
"""RabbitMQ's commands for the runtime that this broker has not."""

NOT_BUILT: Final = _words(
    """
    add_user add_vhost authenticate_user cancel_sync_queue change_password clear_global_parameter
    clear_operator_policy clear_parameter clear_password clear_permissions clear_policy clear_topic_permissions
    clear_user_limits clear_vhost_limits close_all_connections close_all_user_connections close_connection decode
    delete_queue delete_user delete_vhost disable_feature_flag enable_feature_flag encode export_definitions
    force_boot import_definitions list_bindings list_channels list_ciphers list_connections list_consumers
    list_exchanges list_feature_flags list_global_parameters list_hashes list_node_auth_attempt_stats
    list_operator_policies list_parameters list_permissions list_policies list_topic_permissions
    list_unresponsive_queues list_user_limits list_user_permissions list_user_topic_permissions list_users
    list_vhost_limits list_vhosts node_health_check purge_queue rename_cluster_node report reset_stats_db
    restart_vhost rotate_logs schema_info set_disk_free_limit set_global_parameter set_log_level
    set_operator_policy set_parameter set_permissions set_policy set_topic_permissions set_user_limits
    set_user_tags set_vhost_limits set_vhost_tags set_vm_memory_high_watermark sync_queue trace_off trace_on
    update_cluster_nodes wait
    """
)
"""RabbitMQ's commands that this version does not have yet."""
