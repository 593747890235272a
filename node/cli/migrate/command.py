"""`fluffle migrate` moves queues, messages and clients from a RabbitMQ to Fluffle while both run, and back.

    fluffle migrate plan http://rabbit:15672 --to http://fluffle:15672   what differs, how each queue moves
    fluffle migrate start                                                definitions in, shovels begin
    fluffle migrate watch                                                counts at both ends, rates, time left
    fluffle migrate cut-over consumers | publishers | finish             clients move, unless something would be lost
    fluffle migrate back                                                 the other way round
    fluffle migrate report                                               in = out + waiting, by queue

What was planned and done is in the directory `--state`, so that each command can be run again after a failure. Exit
codes: 0 done, 1 refused or not even, 2 a broker does not answer or a file cannot be used, 64 an invalid command line.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

EX_OK: Final = 0
EX_REFUSED: Final = 1
EX_UNUSABLE: Final = 2

DEFAULT_STATE: Final = "fluffle-migration"

INTERVAL_S: Final = 5.0
TIMEOUT_S: Final = 600.0


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the commands and their arguments to the parser."""
    parser = commands.add_parser("migrate", help="move from a RabbitMQ 3.8 to 4.x, step by step")
    steps = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_plan(steps)
    start = _step(steps, "start", "import definitions, and begin to move messages")
    start.add_argument("--accept", action="store_true", help="go on although something blocks")
    watch = _step(steps, "watch", "show how far it is", has_json=True)
    watch.add_argument("--once", action="store_true", help="look once, and end")
    watch.add_argument("--interval", type=_seconds, default=INTERVAL_S, metavar="SECONDS")
    cut_over = _step(steps, "cut-over", "let clients move: consumers, publishers, and the end")
    cut_over.add_argument(
        "step", nargs="?", choices=("consumers", "publishers", "finish"), help="the next one by default"
    )
    cut_over.add_argument(
        "--check", action="store_true", help="say what would be lost, print the commands, do nothing"
    )
    cut_over.add_argument("--close", action="store_true", help="close the connections, rather than print how")
    cut_over.add_argument("--group", type=int, metavar="N", help="only clients of this group of the plan")
    cut_over.add_argument("--force", action="store_true", help="go on although something would be lost")
    cut_over.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="wait so long for clients to leave",
    )
    cut_over.add_argument(
        "--backend", default="brokers", metavar="NAME", help="the brokers' backend in haproxy.cfg"
    )
    cut_over.add_argument(
        "--socket",
        default="/run/haproxy/admin.sock",
        metavar="PATH",
        help="HAProxy's socket for administration",
    )
    _step(steps, "back", "turn round: messages go back to RabbitMQ")
    _step(steps, "report", "the evidence: in = out + waiting, by queue", has_json=True)


def _add_plan(steps: "argparse._SubParsersAction[Any]") -> None:
    plan = steps.add_parser("plan", help="say what differs, and how each queue would move; changes nothing")
    plan.add_argument("url", metavar="URL", help="RabbitMQ's management API, or several with commas")
    plan.add_argument("--to", metavar="URL", help="Fluffle's management API, or several with commas")
    plan.add_argument(
        "--from-amqp", action="append", default=[], metavar="HOST:PORT", help="where Fluffle reaches RabbitMQ"
    )
    plan.add_argument(
        "--to-amqp", action="append", default=[], metavar="HOST:PORT", help="where RabbitMQ reaches Fluffle"
    )
    plan.add_argument("--shovels", choices=("rabbitmq", "fluffle"), help="the end that runs the shovels")
    plan.add_argument(
        "--vhost", action="append", default=[], metavar="NAME", help="only this virtual host; repeatable"
    )
    plan.add_argument("--queues", default="", metavar="REGEX", help="only queues whose name matches")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    _add_common(plan)
    plan.set_defaults(run=_run("plan"))


def _step(
    steps: "argparse._SubParsersAction[Any]", name: str, what: str, *, has_json: bool = False
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = steps.add_parser(name, help=what)
    parser.add_argument(
        "--from", dest="from_url", metavar="URL", help="RabbitMQ's API, if not as planned, or with a password"
    )
    parser.add_argument("--to", metavar="URL", help="Fluffle's API, likewise")
    if has_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    _add_common(parser)
    parser.set_defaults(run=_run(name))
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", default=DEFAULT_STATE, metavar="DIR", help="the directory of the migration"
    )
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authorities for https")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def _run(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that runs a command. Its module is imported then, with all that it needs."""

    def run(arguments: argparse.Namespace) -> int:
        from node.cli.migrate.failures import MigrateError
        from node.cli.migrate.http_api import ApiFailed
        from node.cli.migrate.state import StateError

        module = import_module(f"node.cli.migrate.{name.replace('-', '_')}")
        try:
            code = int(module.run(arguments))
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            # The reader has closed the pipe. Nothing more must be written when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EX_OK
        except MigrateError as error:
            print(f"fluffle migrate {name}: {error}", file=sys.stderr)
            return error.code
        except (ApiFailed, StateError) as error:
            print(f"fluffle migrate {name}: {error}", file=sys.stderr)
            return EX_UNUSABLE
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            print(f"fluffle migrate {name}: {where}{error.strerror or error}", file=sys.stderr)
            return EX_UNUSABLE
        except KeyboardInterrupt:
            print("interrupted: run the command again to go on", file=sys.stderr)
            return 130

    return run
