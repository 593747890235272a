"""The command `fluffle`.

Only what parsing the command line needs is imported here; each command brings its own imports when it runs.
Exit codes are BSD's sysexits, as with RabbitMQ's tools: 64 for a command line that makes no sense, 78 for a
bad configuration (management §3.1).
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from node.cli import certs, cluster, start, store, witness
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
    commands.add_parser("ctl", help="look after a running node: RabbitMQ's rabbitmqctl", add_help=False)
    store.add_parser(commands)
    certs.add_parser(commands)
    witness.add_parser(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns: the exit code."""
    given = sys.argv[1:] if argv is None else argv
    if list(given[:1]) == ["ctl"]:
        from node.cli.ctl.main import main as ctl

        # It has RabbitMQ's rules for options, which are not argparse's.
        return ctl(given[1:])
    arguments = _parser().parse_args(given)
    code: int = arguments.run(arguments)
    return code
