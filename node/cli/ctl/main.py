"""`fluffle ctl [options] COMMAND…` is RabbitMQ's `rabbitmqctl` for a node on this machine, with its other tools.

Its output and its exit codes are RabbitMQ's: 0, 64 for an invalid command line or a node that is in
the wrong state, 65 for an invalid argument, 69 for a node that cannot be reached or a check that failed, 70
for a request that the node refused, 75 for a time-out (management §3.1). Requests use the socket in the node's data
directory.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from node.cli.ctl import target as targets
from node.cli.ctl.arguments import Line, parse
from node.cli.ctl.command import Call, Command, Failed, NotHealthy, Refused
from node.cli.ctl.formats import (
    BOLD,
    FORMATTERS,
    PLAIN,
    WITHOUT_BANNER,
    Message,
    NotFormattable,
    Options,
    Outcome,
    Report,
    render,
)
from node.cli.ctl.help import print_help, print_overview, tell_unknown, usage
from node.cli.ctl.processes import POLL_S, runs
from node.cli.ctl.tools import TOOLS, Tool, commands_of
from node.io import control
from node.operations.operation import EX_DATAERR, EX_SOFTWARE, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE

EX_OK: Final = 0
EX_INTERRUPTED: Final = 130

TIMEOUT_MIN_S: Final = 0.001
_CHANGE_FILES: Final = frozenset({"forget_cluster_node", "reset", "force_reset"})
"""Commands that with `--offline` change the files of a node whose process must not run."""
WHY_S: Final = 1.0
"""The time that a node gets to say why it was late."""
RETRY_S: Final = 0.1
"""The interval at which await_startup looks for a node that does not listen yet."""


def main(
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    *,
    tool: Tool = TOOLS["ctl"],
    ask: Callable[..., Any] = control.request,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Run one command. Returns: the exit code. ask: as `node.io.control.request`."""
    line = parse(arguments)
    command = commands_of(tool).get(line.words[0]) if line.words else None
    if command is not None and command.shorts:
        line = parse(arguments, command.shorts)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that are no text must not end the output
    try:
        return _Run(arguments, line, environ, tool, ask, now).run()
    except BrokenPipeError:
        # The reader has closed the pipe. Nothing more must be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EX_OK
    except KeyboardInterrupt:
        return EX_INTERRUPTED


class _Run:
    """The execution of one command line."""

    def __init__(
        self,
        arguments: Sequence[str],
        line: Line,
        environ: Mapping[str, str],
        tool: Tool,
        ask: Callable[..., Any],
        now: Callable[[], float],
    ) -> None:
        self.arguments = arguments
        self.line = line
        self.environ = environ
        self.tool = tool
        self.commands = commands_of(tool)
        self.request = ask
        self.now = now
        self.name = line.words[0] if line.words else ""
        self.formatter = line.texts.get("formatter", "table")
        self.target: targets.Target | None = None
        self.left_s = 0.0

    def run(self) -> int:
        if self.line.is_set("version"):
            self.name, self.line.words = "version", ["version"]
        if not self.name:
            print_overview(self.tool, sys.stdout if self.line.is_set("help") else sys.stderr)
            return EX_OK if self.line.is_set("help") else EX_USAGE
        command = self.commands.get(self.name)
        if command is None:
            return tell_unknown(self.tool, self.name)
        if self.line.is_set("help") or self.name == "help":
            return self._help()
        self.formatter = self.line.texts.get("formatter", command.formatter)
        try:
            self._check(command)
            if command.is_local:
                return self._locally(command)
            return self._with_node(command)
        except Refused as error:
            return self._refuse(f"Error (argument validation): {error.text}", error.exit_code)
        except Failed as error:
            return self._failed(error)
        except NotFormattable as error:
            text = f"Error (argument validation): the formatter {error} does not suit this command"
            return self._refuse(text, EX_USAGE)

    def _check(self, command: Command) -> None:
        """Check the command line. Raises: Refused."""
        foreign = self.line.foreign(command.options)
        if foreign:
            shown = "\n".join(f"{typed} : {value}" for typed, value in foreign)
            raise Refused(f"Invalid options for this command:\n{shown}")
        least, most = command.arguments
        count = len(self.line.words) - 1
        if count < least:
            raise Refused("not enough arguments.")
        if most is not None and count > most:
            raise Refused("too many arguments.")
        if self.formatter not in FORMATTERS:
            raise Refused(f"there is no formatter {self.formatter}; there are {', '.join(FORMATTERS)}")
        command.request(
            Call("", self.line.words[1:], self.line, 0)
        )  # so that errors come before the search for a node

    def _locally(self, command: Command) -> int:
        """Run a command that can do without a node."""
        texts = self.line.texts
        node = texts.get("node") or self.environ.get("RABBITMQ_NODENAME") or "rabbit"
        node = targets.full_name(node, self.environ, self.line.is_set("longnames"))
        if command.perform is not None:
            node = self._found().name
        self.left_s = float(texts.get("timeout", command.timeout_s))
        call = Call(node, self.line.words[1:], self.line, self.left_s)
        self._banner(command, call)
        if command.perform is not None:
            return self._print(command.perform(call, self), node)
        return self._print(command.present(call, {}), node)

    def _with_node(self, command: Command) -> int:
        timeout_s = float(self.line.texts.get("timeout", command.timeout_s))
        texts = self.line.texts
        deadline = self.now() + timeout_s
        while True:
            try:
                target = targets.find(
                    texts.get("node"),
                    texts.get("data"),
                    self.environ,
                    longnames=self.line.is_set("longnames"),
                )
                call = Call(target.name, self.line.words[1:], self.line, timeout_s)
                arguments = command.request(call)
                if self.line.is_set("dry-run"):
                    self._banner(command, call)
                    return EX_OK
                if self.name in _CHANGE_FILES and self.line.is_set("offline"):
                    return self._offline(command, call, target, arguments)
                left_s = max(deadline - self.now(), TIMEOUT_MIN_S)
                return self._talk(command, call, target, arguments, left_s)
            except targets.NoNode as error:
                if self.name != "await_startup" or self.now() >= deadline:
                    return self._unreachable(None, str(error))
            except _Unreachable as error:
                if self.name != "await_startup" or self.now() >= deadline:
                    return self._unreachable(error.node, error.text)
            time.sleep(RETRY_S)

    def _talk(
        self,
        command: Command,
        call: Call,
        target: targets.Target,
        arguments: dict[str, Any],
        timeout_s: float,
    ) -> int:
        """Send the request to the node, and print its answer. Raises: _Unreachable."""
        if target.data_dir is None:
            asked = self.line.texts.get("node") or target.name
            raise _Unreachable(target.name, f"this user runs no node called {asked} on this machine")
        self.target, self.left_s = target, timeout_s
        has_banner = command.is_slow
        if has_banner:
            self._banner(command, call)
        operation = command.operation or self.name
        try:
            if command.perform is not None:
                outcome = command.perform(call, self)
                if not has_banner:
                    self._banner(command, call)
                return self._print(outcome, call.node)
            result = self.ask(operation, arguments)
            if not has_banner:
                self._banner(command, call)
            if operation == "stop":
                return self._await_end(call, result)
            return self._print(command.present(call, result), call.node)
        except control.ControlUnreachable as error:
            raise _Unreachable(target.name, error.text) from None
        except control.ControlTimeout:
            text = (
                f"Error: operation {self.name} on node {call.node} timed out. "
                f"Timeout value used: {call.timeout_s:g}"
            )
            print(f"{text}{self._why_late()}", file=sys.stderr)
            return EX_TEMPFAIL
        except control.ControlError as error:
            if error.exit_code == EX_USAGE and error.text.startswith("this command requires"):
                return self._refuse(f"Error: {error.text}", EX_USAGE)
            if not has_banner:
                self._banner(command, call)
            if error.exit_code == EX_DATAERR:
                print(error.text, file=sys.stderr)
                return EX_DATAERR
            late = self._why_late() if error.exit_code == EX_TEMPFAIL else ""
            return self._fail(error.exit_code, f"{error.text}{late}")
        except Failed:
            if not has_banner:
                self._banner(command, call)
            raise

    def _offline(
        self, command: Command, call: Call, target: targets.Target, arguments: dict[str, Any]
    ) -> int:
        """Change the files of a node that does not run: remove another node from its metadata, or reset it."""
        from node.clustering import offline
        from node.io.data_directory import DataDirectoryError
        from node.process import changes

        data_dir = targets.data_directory(target, self.environ)
        if control.is_answering(data_dir):
            return self._refuse("Error: this command requires the target node to be stopped.", EX_USAGE)
        owner = _own_name(data_dir) or call.node
        own_name = call.node if "node" in self.line.texts else owner
        self._banner(command, call._replace(node=own_name))
        try:
            if self.name == "forget_cluster_node":
                offline.forget_offline(data_dir, own_name, arguments["node"])
            elif own_name != owner:
                return self._fail(EX_SOFTWARE, f"the data directory belongs to {owner}, not to {own_name}")
            else:
                changes.reset_offline(data_dir)
        except offline.OfflineError as error:
            return self._fail(error.exit_code, error.text)
        except (DataDirectoryError, OSError) as error:
            return self._fail(EX_UNAVAILABLE, str(error))
        return self._print(command.present(call, {}), call.node)

    def _why_late(self) -> str:
        """Return a line with the event that the node waits for, if that is why it did not answer in time."""
        try:
            waits_for = self.ask("status", timeout_s=WHY_S).get("waits_for")
        except control.ControlError:
            return ""
        return self.tool.in_its_words(f"\nThe node {waits_for}") if waits_for else ""

    def _await_end(self, call: Call, result: Mapping[str, Any]) -> int:
        """Wait until the process has ended, after `stop` and `shutdown`."""
        pid = int(result["pid"])
        tells = self.name == "shutdown" and self.is_talking
        if tells:
            print(f"Shutting down RabbitMQ node {call.node} running at PID {pid}", flush=True)
        if not self.line.switches.get("wait", True):
            return EX_OK
        if tells:
            print(f"Waiting for PID {pid} to terminate", flush=True)
        deadline = self.now() + call.timeout_s
        while runs(pid):
            if self.now() >= deadline:
                return self._fail(EX_TEMPFAIL, f"PID {pid} has not ended within {call.timeout_s:g} s")
            time.sleep(POLL_S)
        if tells:
            print(f"RabbitMQ node {call.node} running at PID {pid} successfully shut down")
        return EX_OK

    # --- what commands have at hand: `node.cli.ctl.command.CtlSession` ---

    @property
    def data_dir(self) -> str:
        """The data directory of the command's node. Raises: Failed."""
        return targets.data_directory(self._found(), self.environ)

    def _found(self) -> targets.Target:
        """Return the command's node. Raises: Failed."""
        if self.target is None:
            texts, longnames = self.line.texts, self.line.is_set("longnames")
            try:
                self.target = targets.find(
                    texts.get("node"), texts.get("data"), self.environ, longnames=longnames
                )
            except targets.NoNode as error:
                if not self.commands[self.name].is_local:
                    raise NotHealthy(str(error)) from None
                name = texts.get("node") or "rabbit"
                self.target = targets.Target(targets.full_name(name, self.environ, longnames), None)
        return self.target

    def ask(
        self, operation: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        """Have the node carry out an operation. Raises: ControlError."""
        return self.request(self.data_dir, operation, arguments or {}, timeout_s=timeout_s or self.left_s)

    def say(self, text: str) -> None:
        """Print a line, unless only the result may be printed."""
        if self.is_talking:
            print(text, flush=True)

    # --- output ---

    @property
    def is_talking(self) -> bool:
        """True if anything but the result may be printed."""
        is_quiet = self.line.is_set("quiet") or self.line.is_set("silent")
        return not is_quiet and self.formatter not in WITHOUT_BANNER

    def _banner(self, command: Command, call: Call) -> None:
        text = command.banner(call) if command.banner is not None and self.is_talking else ""
        if text:
            print(text, flush=True)

    def _print(self, outcome: Outcome, node: str = "") -> int:
        has_header = not (self.line.is_set("silent") or self.line.is_set("no-table-headers"))
        if isinstance(outcome, (Message, Report)):
            outcome = outcome._replace(text=self.tool.in_its_words(outcome.text))
        sys.stdout.write(render(outcome, self.formatter, Options(node, has_header)))
        sys.stdout.flush()
        return EX_OK

    def _failed(self, error: Failed) -> int:
        if error.value is not None and self.formatter.startswith("json"):
            sys.stderr.write(render(Report(error.value, ""), "json", Options("")))
        else:
            print(self.tool.in_its_words(error.text), file=sys.stderr)
        return error.exit_code

    def _refuse(self, text: str, code: int) -> int:
        print(
            f"{self.tool.in_its_words(text)}\nArguments given:\n\t{' '.join(self.arguments)}\n",
            file=sys.stderr,
        )
        print(f"{BOLD}Usage{PLAIN}\n\n{usage(self.tool, self.name)}", file=sys.stderr)
        return code

    def _unreachable(self, node: str | None, text: str) -> int:
        if self.name == "stop" and self.line.is_set("idempotent"):
            return EX_OK
        if node is None:
            return self._fail(EX_UNAVAILABLE, text)
        print(
            f"Error: unable to perform an operation on node '{node}'. "
            "Please see diagnostics information and suggestions below.\n\n"
            "Most common reasons for this are:\n\n"
            " * Target node is not running\n"
            " * Target node runs on another machine: run this command there\n"
            " * Target node belongs to another user: run this command as that user, or with --data DIR\n\n"
            f"In addition to the diagnostics info below:\n\n * {text}\n"
            f" * Consult server logs on node {node}",
            file=sys.stderr,
        )
        return EX_UNAVAILABLE

    def _fail(self, code: int, text: str) -> int:
        print(f"Error:\n{self.tool.in_its_words(text)}", file=sys.stderr)
        return code

    def _help(self) -> int:
        name = self.name if self.name != "help" else "".join(self.line.words[1:2])
        if not name:
            print_overview(self.tool, sys.stdout)
            return EX_OK
        if name not in self.commands:
            return self._fail(EX_USAGE, f"\nCommand '{name}' not found.")
        print_help(self.tool, name)
        return EX_OK


class _Unreachable(Exception):
    def __init__(self, node: str, text: str) -> None:
        super().__init__(text)
        self.node = node
        self.text = text


def _own_name(data_dir: str) -> str | None:
    """Return the name of the node whose data this is; None when it cannot be read."""
    from node.io.disk import ReadOnlyDisk
    from node.store.directory import StoreError, read_identity

    try:
        identity = read_identity(ReadOnlyDisk(data_dir))
    except (StoreError, OSError):
        return None
    return None if identity is None else identity.node
