"""`fluffle cluster` runs a cluster on this machine, in one terminal, until Ctrl-C.

    fluffle cluster [--nodes 3] [--base-port 5672] [--data DIR] [--ram N]… [--config FILE] [-- OPTION…]
    fluffle cluster start n1 | stop [n1] | status        from another terminal, for the cluster that runs on DIR

Node n1 accepts clients on the base port, n2 on the next one, and so on. Each node accepts other nodes on a port 20000
higher. All ports are on loopback; those for clients are also on ::1 where there is IPv6. The data of n1 are in DIR/n1.
Options after `--` are passed to `fluffle start`. If DIR already has the data of a cluster, that cluster is started.

Exit codes: 0 after a signal or `stop`, 64 for a bad command line, 69 when a node or the cluster could not start or no
cluster runs on DIR, 70 when nodes had to be killed, 74 when a node could not write all its data, 75 for a time-out, 78
for a bad configuration.
"""

import argparse
import json
import os
import sys
import threading
from typing import Any, Final, NamedTuple

EX_OK: Final = 0
EX_USAGE: Final = 64
EX_UNAVAILABLE: Final = 69
EX_CONFIG: Final = 78
EX_INTERRUPTED: Final = 130

DEFAULT_DIRECTORY: Final = "var/cluster"
DEFAULT_NODES: Final = 3
DEFAULT_BASE_PORT: Final = 5672
NODES_MAX: Final = 32
PEER_PORT_OFFSET: Final = 20000
PORT_MAX: Final = 65535
HOST: Final = "127.0.0.1"
"""The address on which all nodes listen."""
HOST_IPV6: Final = "::1"
"""The further address on which the nodes listen for clients: `localhost` is this one first."""
NODE_HOST: Final = "localhost"
"""The host in the nodes' names."""

SETTINGS_FILE: Final = "cluster.json"
ACTIONS: Final = {"start": (1,), "stop": (0, 1), "status": (0,)}
"""The requests to a running cluster, and the allowed numbers of names with each."""
REMINDER_S: Final = 5.0
"""The time after which the command prints what it is waiting for."""
ASK_S: Final = 600.0
"""The time that `start` and `stop` may take: a node may have much to read or write."""


class NodePlan(NamedTuple):
    """The plan of one node."""

    name: str
    port: int
    is_ram: bool

    @property
    def peer_port(self) -> int:
        """The port on which the node accepts other nodes."""
        return self.port + PEER_PORT_OFFSET

    @property
    def full_name(self) -> str:
        """The name with its host, such as `n1@localhost`."""
        return f"{self.name}@{NODE_HOST}"


class Plan(NamedTuple):
    """The plan of a cluster."""

    directory: str
    nodes: tuple[NodePlan, ...]
    options: tuple[str, ...]
    """Further options of every `fluffle start`."""

    def data_dir(self, node: NodePlan) -> str:
        """Return the data directory of a node."""
        return os.path.join(self.directory, node.name)


class BadPlan(Exception):
    """The command line or the settings on disk describe no cluster; the text says why."""

    def __init__(self, text: str, exit_code: int = EX_USAGE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its arguments to the parser."""
    parser = commands.add_parser(
        "cluster",
        help="run a cluster on this machine",
        usage="fluffle cluster [options] [-- OPTION...] | fluffle cluster start N | stop [N] | status",
        description="Runs nodes n1, n2, ... on loopback until Ctrl-C. Options after -- are passed to `fluffle start`.",
    )
    parser.add_argument(
        "--nodes", metavar="N", type=int, help=f"the number of nodes (default: {DEFAULT_NODES})"
    )
    parser.add_argument(
        "--base-port",
        metavar="PORT",
        type=int,
        help=f"AMQP port of n1; n2 has the next, and so on (default: {DEFAULT_BASE_PORT})",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        default=DEFAULT_DIRECTORY,
        help=f"the nodes' data directories are DIR/n1, DIR/n2, ... (default: {DEFAULT_DIRECTORY})",
    )
    parser.add_argument(
        "--ram", metavar="N", action="append", help="join node N as a RAM node; may be repeated"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file of every node")
    parser.add_argument("--json", action="store_true", help="with `status`: print JSON")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run a cluster, or send a request to the one that runs. Returns: the exit code."""
    words = list(arguments.words)
    directory = os.path.abspath(arguments.data)
    if words and not words[0].startswith("-"):
        return _ask(directory, words, is_json=arguments.json)
    options = [*(("--config", os.path.abspath(arguments.config)) if arguments.config else ()), *words]
    try:
        plan = make_plan(directory, arguments.nodes, arguments.base_port, arguments.ram, tuple(options))
    except BadPlan as error:
        return _fail(error.exit_code, str(error))
    from node.cli.supervisor import supervise

    return supervise(plan)


# --- the plan ---


def make_plan(
    directory: str,
    nodes: int | None,
    base_port: int | None,
    ram: list[str] | None,
    options: tuple[str, ...] = (),
) -> Plan:
    """Return the plan of the cluster; arguments that are None are as in the last run. Raises: BadPlan."""
    known = _read_settings(directory)
    count = known.get("nodes", DEFAULT_NODES) if nodes is None else nodes
    first_port = known.get("base_port", DEFAULT_BASE_PORT) if base_port is None else base_port
    if not 1 <= count <= NODES_MAX:
        raise BadPlan(f"--nodes {count}: not allowed; allowed: from 1 to {NODES_MAX}")
    port_max = PORT_MAX - PEER_PORT_OFFSET - count + 1
    if not 1 <= first_port <= port_max:
        raise BadPlan(
            f"--base-port {first_port}: not allowed; allowed: from 1 to {port_max}, "
            f"because the ports between nodes are {PEER_PORT_OFFSET} higher"
        )
    names = [f"n{number}" for number in range(1, count + 1)]
    ram_names = set(known.get("ram", ())) if ram is None else {f"n{name.removeprefix('n')}" for name in ram}
    unknown = sorted(ram_names.difference(names))
    if unknown and ram is not None:
        raise BadPlan(f"--ram {unknown[0]}: there is no such node; there are {', '.join(names)}")
    if names[0] in ram_names:
        raise BadPlan(f"--ram {names[0]}: the first node makes the cluster, and a RAM node cannot")
    plans = (NodePlan(name, first_port + index, name in ram_names) for index, name in enumerate(names))
    return Plan(directory, tuple(plans), options)


def write_settings(plan: Plan) -> None:
    """Write a plan beside the nodes' data. Raises: OSError."""
    settings = {
        "nodes": len(plan.nodes),
        "base_port": plan.nodes[0].port,
        "ram": [node.name for node in plan.nodes if node.is_ram],
    }
    path = os.path.join(plan.directory, SETTINGS_FILE)
    with open(f"{path}.new", "w") as file:
        file.write(json.dumps(settings) + "\n")
    os.replace(f"{path}.new", path)


def _read_settings(directory: str) -> dict[str, Any]:
    path = os.path.join(directory, SETTINGS_FILE)
    try:
        with open(path) as file:
            settings = json.load(file)
        numbers = (settings["nodes"], settings["base_port"])
        if not all(type(number) is int for number in numbers) or not all(
            isinstance(name, str) for name in settings["ram"]
        ):
            raise ValueError("it does not describe a cluster")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadPlan(f"{path}: cannot be read: {error.strerror}", EX_CONFIG) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadPlan(f"{path}: is damaged ({error!r}); the nodes' data are not in it", EX_CONFIG) from None
    return {name: settings[name] for name in ("nodes", "base_port", "ram")}


# --- asking the one that runs ---


def _ask(directory: str, words: list[str], *, is_json: bool) -> int:
    from node.io import control

    action, names = words[0], words[1:]
    if len(names) not in ACTIONS.get(action, ()):
        return _fail(EX_USAGE, "allowed: fluffle cluster start NODE, stop [NODE], status [--json]")
    if is_json and action != "status":
        return _fail(EX_USAGE, "--json goes with `fluffle cluster status`")
    arguments = {"name": names[0] if names else None}
    reminder = threading.Timer(REMINDER_S, _remind, words)
    reminder.daemon = True
    reminder.start()
    try:
        answer = control.request(directory, action, arguments, timeout_s=ASK_S)
    except control.ControlUnreachable:
        return _fail(
            EX_UNAVAILABLE, f"no cluster runs on {directory}; `fluffle cluster --data {directory}` starts it"
        )
    except control.ControlError as error:
        return _fail(error.exit_code, error.text)
    except KeyboardInterrupt:
        return EX_INTERRUPTED
    finally:
        reminder.cancel()
    if is_json:
        print(json.dumps({"nodes": answer["nodes"]}, indent=1))
        return EX_OK
    for line in answer["lines"]:
        print(line)
    return EX_OK


def _remind(action: str, *names: str) -> None:
    what = " ".join([action, *names])
    hint = "; after a crash, a node waits until a majority of the nodes runs" if action == "start" else ""
    print(f"fluffle: still waiting for `{what}`{hint}", file=sys.stderr, flush=True)


def _fail(code: int, problem: str) -> int:
    print(f"fluffle: {problem}", file=sys.stderr)
    return code
