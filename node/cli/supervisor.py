"""The supervisor runs the nodes of `fluffle cluster`: one process each, with their lines on this terminal.

The nodes have sessions of their own, so Ctrl-C reaches the supervisor alone, which then stops them; and the kernel
tells them to stop when the supervisor is killed. A node that ends by itself after the start is not started again until
a user asks for it: the cluster serves to try such failures.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

from node.cli.cluster import HOST, HOST_IPV6, NodePlan, Plan, write_settings
from node.cli.ports import why_not
from node.io.control import ControlError
from node.io.control_server import ControlServer
from node.io.data_directory import DIRECTORY_MODE, DataDirectoryError

EX_OK: Final = 0
EX_USAGE: Final = 64
EX_UNAVAILABLE: Final = 69
EX_SOFTWARE: Final = 70

NODE_COMMAND: Final = (sys.executable, "-P", "-m", "node", "start")
"""The command that starts a node. -P: a folder `node` in the working directory must not be imported."""
READY_LINE: Final = b"fluffle: node "
LINE_MAX_BYTES: Final = 1 << 16
"""The longest line that is passed on in one piece."""
STOP_MAX_S: Final = 620.0
"""The time after which a node that has not stopped is killed: longer than `message_store_shutdown_timeout`."""
REMINDER_S: Final = 30.0
"""The interval at which the nodes that are not ready are named."""
RELAYED_CODES: Final = frozenset({64, 69, 74, 78})
"""Exit codes of a node that name the cause, and become ours."""

_PR_SET_PDEATHSIG: Final = 1


def supervise(plan: Plan, command: tuple[str, ...] = NODE_COMMAND) -> int:
    """Run a cluster until a signal comes. Returns: the exit code. command: the start of a node, for tests."""
    return asyncio.run(_Supervisor(plan, command).run())


class _Node:
    """One node, and its process while it has one."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.process: asyncio.subprocess.Process | None = None
        self.is_ready = False
        self.is_stopping = False
        self.changed = asyncio.Event()
        """Set when the node became ready, or ended."""
        self.ending = "was not started"

    @property
    def state(self) -> str:
        if self.process is None:
            return self.ending
        return "stopping" if self.is_stopping else "running" if self.is_ready else "starting"


class _Supervisor:
    def __init__(self, plan: Plan, command: tuple[str, ...]) -> None:
        self._plan = plan
        self._command = command
        self._nodes = {node.name: _Node(node) for node in plan.nodes}
        self._server = ControlServer(plan.directory, self._handle)
        self._stopping = asyncio.Event()
        self._signals = 0
        self._is_up = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._code = EX_OK
        self._has_ipv6 = not why_not(HOST_IPV6, 0)
        self._width = max(map(len, self._nodes))

    async def run(self) -> int:
        """Start the nodes, wait for a signal, stop them. Returns: the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)
        busy = _busy_ports(self._plan, has_ipv6=self._has_ipv6)
        try:
            await self._server.start()
        except DataDirectoryError:
            return self._say_failure(
                f"a cluster runs on {self._plan.directory} already, or it cannot be used"
            )
        try:
            if busy:
                return self._say_failure(*busy)
            write_settings(self._plan)
            for node in self._nodes.values():
                await self._launch(node)
            if await self._await_all_ready():
                self._is_up = True
                self._say(self._summary())
                await self._stopping.wait()
        except OSError as error:
            self._code = self._say_failure(f"cannot start: {error}")
        finally:
            await self._stop_all()
            await self._server.close()
        return self._code

    # --- starting ---

    async def _launch(self, node: _Node) -> None:
        """Start a node's process. Raises: OSError."""
        data_dir = self._plan.data_dir(node.plan)
        os.makedirs(data_dir, DIRECTORY_MODE, exist_ok=True)
        node.is_ready = node.is_stopping = False
        node.changed.clear()
        node.process = process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--name", node.plan.full_name, "--data", data_dir),
            *("--listen", f"{HOST}:{node.plan.port}", "--peer", f"{HOST}:{node.plan.peer_port}"),
            *(("--listen", f"[{HOST_IPV6}]:{node.plan.port}") if self._has_ipv6 else ()),
            *(("--ram",) if node.plan.is_ram else ()),
            *self._plan.options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"FLUFFLE_CLUSTER_NODES": self._addresses()},
            start_new_session=True,
            preexec_fn=_stop_with_parent(),
        )
        self._spawn(self._watch(node, process))

    def _addresses(self) -> str:
        """Return the nodes as FLUFFLE_CLUSTER_NODES names them."""
        return ",".join(f"{node.full_name}:{node.peer_port}" for node in self._plan.nodes)

    async def _await_all_ready(self) -> bool:
        """Wait until all nodes accept clients. Returns: False if one has ended before, or the cluster is to stop."""
        for node in self._nodes.values():
            while not node.is_ready:
                if self._stopping.is_set():
                    return False
                if self._ended():
                    self._fail_start()
                    return False
                await self._await_change()
        return not self._stopping.is_set()

    def _ended(self) -> list[_Node]:
        return [node for node in self._nodes.values() if node.process is None]

    def _fail_start(self) -> None:
        node = self._ended()[0]
        code = int(node.ending.rpartition(" ")[2]) if "exit code" in node.ending else EX_SOFTWARE
        self._code = code if code in RELAYED_CODES else EX_SOFTWARE
        self._say_failure(f"{node.plan.name} {node.ending} before it was ready: the cluster is stopped")

    async def _await_change(self) -> None:
        """Wait until a node is ready or has ended, the cluster is to stop, or `REMINDER_S` are over."""
        waits = [
            asyncio.ensure_future(each.changed.wait()) for each in self._nodes.values() if not each.is_ready
        ]
        waits.append(asyncio.ensure_future(self._stopping.wait()))
        done, pending = await asyncio.wait(waits, timeout=REMINDER_S, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        if not done:
            missing = [each.plan.name for each in self._nodes.values() if not each.is_ready]
            self._say(f"still waiting for {', '.join(missing)}")

    def _summary(self) -> str:
        places = ", ".join(f"{HOST}:{node.port}" for node in self._plan.nodes)
        return f"cluster of {len(self._nodes)} ready, amqp on {places}; Ctrl-C stops it"

    # --- a process ---

    async def _watch(self, node: _Node, process: asyncio.subprocess.Process) -> None:
        """Pass on a process's lines until it ends, and record how it ended."""
        assert process.stdout is not None
        assert process.stderr is not None
        await asyncio.gather(
            self._relay(node, process.stdout, sys.stdout), self._relay(node, process.stderr, sys.stderr)
        )
        code = await process.wait()
        if code < 0:
            name = ""
            with contextlib.suppress(ValueError):  # Python has no names for most real-time signals
                name = f" ({signal.Signals(-code).name})"
            node.ending = f"was killed by signal {-code}{name}"
        else:
            node.ending = f"ended with exit code {code}" if code else "has stopped"
        # A node that does not handle signals yet dies of the one that we sent: that counts as an ordinary stop.
        if node.is_stopping and code not in (0, -signal.SIGTERM) and self._code == EX_OK:
            self._code = code if code in RELAYED_CODES else EX_SOFTWARE
        was_asked = node.is_stopping
        node.process = None
        node.changed.set()
        if self._is_up and not was_asked:
            again = f"`fluffle cluster start {node.plan.name} --data {self._plan.directory}` starts it again"
            self._say(f"{node.plan.name} {node.ending}, and stays down; {again}")

    async def _relay(self, node: _Node, stream: asyncio.StreamReader, output: TextIO) -> None:
        """Write the stream line by line, with the node's name before each line."""
        prefix = f"{node.plan.name:<{self._width}} | "
        rest = b""
        while data := await stream.read(LINE_MAX_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_MAX_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                if output is sys.stdout and line.startswith(READY_LINE) and b" ready" in line:
                    node.is_ready = True
                    node.changed.set()
            _write(output, "".join(f"{prefix}{line.decode(errors='replace')}\n" for line in lines))
        if rest:
            _write(output, f"{prefix}{rest.decode(errors='replace')}\n")

    # --- stopping ---

    def _signalled(self) -> None:
        self._signals += 1
        self._stopping.set()
        if self._signals == 1:
            return
        for node in self._nodes.values():
            if node.process is not None:
                self._say(f"{node.plan.name} is killed")
                _send(node.process, signal.SIGKILL)

    async def _stop_all(self) -> None:
        """Ask every node to stop, and wait until all have ended."""
        self._stopping.set()
        running = [node for node in self._nodes.values() if node.process is not None]
        if running and self._signals:
            self._say("stopping; Ctrl-C again kills the nodes")
        await asyncio.gather(*(self._stop(node) for node in running))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_MAX_S)

    async def _stop(self, node: _Node) -> None:
        process = node.process
        if process is None:
            return
        if not node.is_stopping:
            node.is_stopping = True
            _send(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_MAX_S):
                await process.wait()
        except TimeoutError:
            self._say(f"{node.plan.name} does not stop: it is killed")
            _send(process, signal.SIGKILL)

    # --- requests from other terminals ---

    async def _handle(self, operation: str, arguments: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Answer `status`, `start` and `stop` of `fluffle cluster` in another terminal. Raises: ControlError."""
        if operation == "status":
            return {"lines": self._status(), "nodes": self._facts()}
        if operation == "stop" and arguments.get("name") is None:
            self._signals = max(self._signals, 1)
            self._stopping.set()
            return {"lines": ["stopping"]}
        if operation not in ("start", "stop"):
            first = self._plan.data_dir(self._plan.nodes[0])
            text = f"{self._plan.directory} is the directory of a cluster: name a node, with --data {first}"
            raise ControlError(EX_USAGE, text)
        name = str(arguments.get("name")).partition("@")[0]
        if name not in self._nodes:
            raise ControlError(EX_USAGE, f"there is no node {name}; there are {', '.join(self._nodes)}")
        node = self._nodes[name]
        return {"lines": [await (self._start_again(node) if operation == "start" else self._stop_one(node))]}

    async def _start_again(self, node: _Node) -> str:
        name = node.plan.name
        if self._stopping.is_set():
            raise ControlError(EX_UNAVAILABLE, "the cluster is being stopped")
        if node.process is not None:
            return f"{name} is {node.state} already"
        try:
            await self._launch(node)
        except OSError as error:
            raise ControlError(EX_UNAVAILABLE, f"{name} cannot be started: {error}") from None
        await node.changed.wait()
        if not node.is_ready:
            raise ControlError(EX_UNAVAILABLE, f"{name} {node.ending} before it was ready: its log says why")
        return f"{name} is ready, amqp on {HOST}:{node.plan.port}"

    async def _stop_one(self, node: _Node) -> str:
        name = node.plan.name
        if node.process is None:
            return f"{name} {node.ending} already"
        await self._stop(node)
        return f"{name} has stopped"

    def _facts(self) -> list[dict[str, Any]]:
        """Return the state of each node."""
        return [
            {
                "node": node.plan.full_name,
                "state": node.state,
                "pid": node.process.pid if node.process else None,
                "amqp": f"{HOST}:{node.plan.port}",
                "peers": f"{HOST}:{node.plan.peer_port}",
                "type": "ram" if node.plan.is_ram else "disc",
                "data": self._plan.data_dir(node.plan),
            }
            for node in self._nodes.values()
        ]

    def _status(self) -> list[str]:
        facts = self._facts()
        rows = [tuple(facts[0]), *(tuple(str(value or "-") for value in each.values()) for each in facts)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]

    # --- the terminal ---

    def _say(self, text: str) -> None:
        _write(sys.stdout, f"fluffle: {text}\n")

    def _say_failure(self, *problems: str) -> int:
        for problem in problems:
            _write(sys.stderr, f"fluffle: {problem}\n")
        return EX_UNAVAILABLE

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(output: TextIO, text: str) -> None:
    """Write to the terminal; errors are ignored, so that the nodes continue when it is closed."""
    with contextlib.suppress(OSError, ValueError):
        output.write(text)
        output.flush()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _busy_ports(plan: Plan, *, has_ipv6: bool) -> list[str]:
    """Return a line for each port on which another process listens."""
    problems = []
    for node in plan.nodes:
        wanted = [(HOST, node.port, "clients"), (HOST, node.peer_port, "other nodes")]
        if has_ipv6:
            wanted.append((HOST_IPV6, node.port, "clients"))
        for host, port, use in wanted:
            if why := why_not(host, port):
                place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                problems.append(f"{node.name} cannot accept {use} on {place}: {why}")
    if problems:
        problems.append("choose other ports with --base-port PORT (make up BASE_PORT=PORT)")
    return problems


def _stop_with_parent() -> Callable[[], None] | None:
    """Return what a node's process runs first: Linux then sends it SIGTERM when we end, however (prctl(2))."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def bind() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent has ended in between
            os._exit(1)

    return bind
