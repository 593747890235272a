"""`fluffle witness` runs a node that votes on the cluster's metadata, and has no queues and no clients.

With a witness, a cluster of two other nodes continues when one of them is lost. It joins the nodes that
cluster_formation names. Its exit codes are those of `fluffle start`.
"""

import argparse
import os
from typing import Any

from node.cli import start


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its arguments to the parser."""
    parser = commands.add_parser("witness", help="run a node that only votes on the cluster's metadata")
    parser.add_argument(
        "--name", metavar="N", help="node name; without @host, this machine's is added (default: rabbit)"
    )
    parser.add_argument(
        "--data", metavar="DIR", help="the node's data directory (default: /var/lib/fluffle/NAME)"
    )
    parser.add_argument(
        "--peer", metavar="HOST:PORT", help="accept other nodes of the cluster on this address"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file, in rabbitmq.conf's format")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the witness until a signal comes. Returns: the exit code."""
    import socket
    import sys
    from dataclasses import replace

    from node.config.file import ConfigError
    from node.config.load import StartOptions, load_config

    options = StartOptions(arguments.name, arguments.data, (), arguments.config, arguments.peer)
    try:
        config = load_config(options, os.environ, start.DiskFiles(), hostname=socket.gethostname())
    except ConfigError as error:
        for problem in error.problems:
            print(f"fluffle: {problem}", file=sys.stderr)
        return start.EX_CONFIG
    witness = replace(config.cluster, node_type="witness")
    return start.run_node(replace(config, cluster=witness, tcp_listeners=(), tls_listeners=()))
