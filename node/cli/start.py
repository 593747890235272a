"""`fluffle start` runs one node in the foreground, until SIGTERM or SIGINT.

Exit codes: 0 after a signal, 64 for a bad command line, 69 when the node could not start (a port in use,
say), 74 when it stopped and could not write all, 78 for a bad configuration. Standard output gets one line,
when clients are accepted; log lines go to the configured outputs. Modules that are slow to import are
imported once the configuration is known to be valid.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from node.config.config import Config

EX_OK: Final = 0
EX_UNAVAILABLE: Final = 69
EX_IOERR: Final = 74
EX_CONFIG: Final = 78

FILES_KEPT_FOR_OURSELVES: Final = 400
"""The reserve for the "file handles (sockets)" line: RabbitMQ's 100, and the files that the disk keeps open. Sockets
are 90 % of the rest.
"""


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its arguments to the parser."""
    parser = commands.add_parser("start", help="run a node in the foreground")
    parser.add_argument(
        "--name", metavar="N", help="node name; without @host, this machine's is added (default: rabbit)"
    )
    parser.add_argument(
        "--data", metavar="DIR", help="the node's data directory (default: /var/lib/fluffle/NAME)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="accept AMQP on this address, instead of the configured ones; may be repeated",
    )
    parser.add_argument(
        "--management",
        metavar="HOST:PORT|off",
        help="the HTTP API and the UI (default: on, 10000 above the AMQP port, which makes 15672)",
    )
    parser.add_argument(
        "--peer", metavar="HOST:PORT", help="accept other nodes of the cluster on this address"
    )
    parser.add_argument(
        "--telemetry", metavar="DIR", help="write telemetry for spark-ops into this directory"
    )
    parser.add_argument("--ram", action="store_true", help="join the cluster as a RAM node")
    parser.add_argument("--config", metavar="FILE", help="configuration file, in rabbitmq.conf's format")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the configuration and run the node. Returns: the exit code."""
    import socket

    from node.config.file import ConfigError
    from node.config.load import StartOptions, load_config

    options = StartOptions(
        arguments.name,
        arguments.data,
        tuple(arguments.listen),
        arguments.config,
        arguments.peer,
        arguments.ram,
        arguments.management,
        arguments.telemetry,
    )
    try:
        config = load_config(options, os.environ, DiskFiles(), hostname=socket.gethostname())
    except ConfigError as error:
        return _fail(EX_CONFIG, *error.problems)
    return run_node(config)


def run_node(config: "Config") -> int:
    """Run a node until a signal comes. Returns: the exit code."""
    import asyncio
    import signal

    import uvloop

    from node.cli.ports import busy_ports
    from node.config.file import ConfigError
    from node.io.data_directory import is_locked
    from node.io.time_slice import ask_for_short_slices
    from node.log import log

    ask_for_short_slices()  # before there are other threads, which follow
    # If a node runs on the same directory, its lock gives a better error than its ports.
    if not is_locked(config.data_dir) and (busy := busy_ports(config)):
        return _fail(EX_UNAVAILABLE, *busy)
    try:
        logs = _open_logs(config)
    except OSError as error:
        return _fail(EX_CONFIG, f"the log cannot be written: {error}")
    _log_start(config, raise_file_limit())
    logger = log.category_logger()
    # uvloop only looks up names of listeners in these threads, of which it would make four.
    os.environ.setdefault("UV_THREADPOOL_SIZE", "1")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = EX_OK if runner.run(_serve(config)) else EX_IOERR
        for number in (signal.SIGTERM, signal.SIGINT):
            # The node has stopped: a signal that comes now must not change how that ends.
            signal.signal(number, signal.SIG_IGN)
    except ConfigError as error:
        logger.critical("%s", error)
        code = _fail(EX_CONFIG, *error.problems)
    except OSError as error:
        logger.critical("cannot start: %s", error)
        code = _fail(EX_UNAVAILABLE, f"cannot start: {error}")
    if not logs.stop():
        # The reader of the log does not read: an ordinary exit would wait for it.
        os._exit(code)
    return code


async def _serve(config: "Config") -> bool:
    """Run a node until a signal comes, even before the node is ready. Returns: whether all is on disk then."""
    import asyncio
    import signal

    from node.agent.operations import Operations
    from node.config.values import Address
    from node.log import phrases
    from node.log.log import category_logger
    from node.process.agent import Agent
    from node.process.status import active_plugins

    logger = category_logger()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_stop.set)
    for number in (signal.SIGHUP, signal.SIGTSTP):
        signal.signal(
            number, signal.SIG_IGN
        )  # as RabbitMQ: a terminal that goes or waits is no reason to stop
    agent = Agent(config, Operations, logger)
    is_started = await agent.start(asked_to_stop)
    try:
        if is_started:
            listeners = [
                ("amqp/ssl" if place in agent.tls_listeners else "amqp", *place) for place in agent.listeners
            ]
            listeners += [each for each in agent.management.listeners if "prometheus" not in each[0]]
            places = ", ".join(f"{name} on {Address(host or '::', port)}" for name, host, port in listeners)
            logger.info(phrases.startup_complete(active_plugins(agent)))
            print(f"fluffle: node {config.node_name} ready, {places or 'no listeners'}", flush=True)
        await asked_to_stop.wait()
        if not agent.has_failed:
            logger.info(phrases.asked_to_stop(config.product.name))
    finally:
        is_written = await agent.stop()
    if is_written:
        logger.info(phrases.stopped(config.product.name))
    return is_written


def _open_logs(config: "Config") -> Any:
    from node.log import log

    if config.log.file is not None:
        os.makedirs(os.path.dirname(config.log.file.path) or ".", exist_ok=True)
    return log.configure(config.log)


def _log_start(config: "Config", file_limit: int) -> None:
    import platform

    from node.log import phrases
    from node.log.log import category_logger
    from node.version import VERSION

    logger = category_logger()
    console = config.log.console
    places = [f"<{console.stream}>"] if console else []
    if config.log.file:
        places.append(config.log.file.path)
    product = config.product
    logger.info(
        phrases.starting("Fluffle", VERSION, platform.python_version(), product.name, product.version)
    )
    logger.info(phrases.settings(config.node_name, config.files, places, config.data_dir))
    if config.unused:
        logger.warning(phrases.unused_settings(config.unused))
    usable = max(file_limit - FILES_KEPT_FOR_OURSELVES, 1)
    logger.info(phrases.file_handles(usable, usable * 9 // 10))


def raise_file_limit() -> int:
    """Raise the limit of open files as far as the system allows. Returns: the limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems say "unlimited" and mean less
            return soft
    return hard


class DiskFiles:
    """The `node.config.given.Files` of this machine."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when there is no such file. Raises OSError."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def expand(self, pattern: str) -> list[str]:
        """Return the `.conf` files in a directory, or that a shell pattern matches, in the order of their names."""
        import glob

        if os.path.isdir(pattern):
            pattern = os.path.join(glob.escape(pattern), "*.conf")
        return sorted(path for path in glob.glob(pattern) if path.endswith(".conf"))

    def is_private(self, path: str) -> bool:
        """Return whether only the file's owner may read or write it. Raises OSError."""
        import stat

        return not stat.S_IMODE(os.stat(path).st_mode) & 0o077

    def readable(self, path: str) -> bool:
        """Return whether the node could read the file."""
        return os.path.isfile(path) and os.access(path, os.R_OK)


def _fail(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"fluffle: {problem}", file=sys.stderr)
    return code
