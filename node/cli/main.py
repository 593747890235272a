"""The command `fluffle` begins here.

Only modules for parsing the command line are imported here; each command imports its own when it runs.
Exit codes are BSD's sysexits, as with RabbitMQ's tools: 64 for an invalid command line, 78 for a
bad configuration (management §3.1).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from node.cli import certs, cluster, completion, start, store, witness
from node.cli.migrate import command as migrate
from node.version import COMPATIBLE_VERSION, VERSION

EX_OK: Final = 0
EX_USAGE: Final = 64


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EX_USAGE, f"{self.prog}: error: {message}\n")


def _version(_arguments: argparse.Namespace) -> int:
    print(f"fluffle {VERSION} (compatible with RabbitMQ {COMPATIBLE_VERSION})")
    return EX_OK


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fluffle", description="An AMQP 0-9-1 broker that RabbitMQ's clients can use unchanged."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    start.add_parser(commands)
    cluster.add_parser(commands)
    for name, what in _TOOLS.items():
        commands.add_parser(name, help=what, add_help=False)
    store.add_parser(commands)
    certs.add_parser(commands)
    witness.add_parser(commands)
    migrate.add_parser(commands)
    links = commands.add_parser(
        "compat-links", help="make links named rabbitmqctl, rabbitmq-diagnostics … in a directory"
    )
    links.add_argument("directory", metavar="DIR")
    links.set_defaults(run=_compat_links)
    completion.add_parser(commands, parser)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return parser


def _compat_links(arguments: argparse.Namespace) -> int:
    from node.cli.ctl.tools import make_links

    return make_links(arguments.directory, sys.argv[0])


_TOOLS: Final = {
    "ctl": "manage a running node: RabbitMQ's rabbitmqctl",
    "diagnostics": "health checks and reports: rabbitmq-diagnostics",
    "queues": "replicated queues: rabbitmq-queues",
    "plugins": "the plug-ins of the node: rabbitmq-plugins",
    "upgrade": "maintenance mode: rabbitmq-upgrade",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns: the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    program = os.path.basename(sys.argv[0]) if argv is None else ""
    if program == "rabbitmq-server":
        from node.cli.ctl.tools import serve

        code = serve(given)
        if code is not None:
            return code
        given.insert(0, "start")
    elif program.startswith("rabbitmq") or (given[:1] and given[0] in _TOOLS):
        # These tools have RabbitMQ's rules for options, which are not argparse's.
        from node.cli.ctl.main import main as ctl
        from node.cli.ctl.tools import TOOLS, called_as

        tool = called_as(program)
        if tool is not None:
            return ctl(given, tool=tool)
        if given[:1] and given[0] in TOOLS:
            return ctl(given[1:], tool=TOOLS[given[0]])
    arguments = _parser().parse_args(given)
    code = arguments.run(arguments)
    return int(code)
