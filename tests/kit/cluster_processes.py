"""Nodes of a cluster, each in its own process on loopback; tests use their control sockets."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from node.io.control import ControlError, request
from tests.kit.node_process import HOST, NodeProcess, start_command
from tests.kit.patience import wait_until
from tests.kit.ports import free_ports

START_S: Final = 40.0
WAIT_S: Final = 30.0


def until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until a condition is true."""

    def look() -> object:
        try:
            return condition()
        except ControlError:
            return False

    wait_until(look, what, timeout_s)


class MemberProcess(NodeProcess):
    """One node, called `NAME@localhost`, with its data in `directory/NAME`.

    command: `start`, or `witness`, which has no clients.   is_plain: it belongs to no cluster.
    is_forked: its process is a fork of one that has imported all (tests/kit/fork_server.py), where that can be.
    formation: the nodes that it forms a cluster with, by their `seed`; `options` come last on its command line.
    """

    stop_s = 40.0

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        command: str = "start",
        is_plain: bool = False,
        is_forked: bool = True,
    ) -> None:
        super().__init__(directory, f"{name}@localhost", data=directory / name)
        self.port, self.peer_port = free_ports(2)
        self.command = command
        self.is_plain = is_plain
        self.is_forked = is_forked
        self.formation = ""

    @property
    def seed(self) -> str:
        """The node's name and address, as in the keys of cluster_formation."""
        return f"{self.name}:{self.peer_port}"

    def launch(self, settings: Mapping[str, str] | None = None) -> None:
        if settings is not None:
            self.configure(settings)
        command = start_command(
            self.name,
            self.data,
            listen=f"{HOST}:{self.port}" if self.command == "start" else "",
            peer="" if self.is_plain else f"{HOST}:{self.peer_port}",
            config=self._config,
            program=("-m", "node", self.command),
        )
        environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.directory), **self.environment}
        if self.formation:
            environ["FLUFFLE_CLUSTER_NODES"] = self.formation
        start = self._fork if self.is_forked else self._spawn
        start([*command, *self.options], environ)

    def wait_ready(self) -> None:
        """Wait until the node serves clients."""
        until(
            lambda: self.ask("status")["is_running"],
            f"{self.name} serves: {self.log_text()[-3000:]}",
            START_S,
        )

    def ask(self, operation: str, *, timeout_s: float = 30.0, **arguments: object) -> Any:
        """Return the result of a control operation. Raises: ControlError."""
        assert self.exit_code is None, self.log_text()[-3000:]
        return request(str(self.data), operation, arguments, timeout_s=timeout_s)

    def fails(self, operation: str, **arguments: object) -> tuple[int, str]:
        """Return the exit code and the text of a control operation that is refused."""
        try:
            result = self.ask(operation, **arguments)
        except ControlError as error:
            return error.exit_code, error.text
        raise AssertionError(f"{operation} gave {result}")


class ClusterProcesses:
    """The nodes of a cluster, which are killed at the end."""

    def __init__(self, directory: Path, *, is_forked: bool = True) -> None:
        self.directory = directory
        self.is_forked = is_forked
        self.all: list[MemberProcess] = []

    def make(self, name: str, **options: Any) -> MemberProcess:
        """Make another node, not started."""
        process = MemberProcess(self.directory, name, is_forked=self.is_forked, **options)
        self.all.append(process)
        return process

    def formed(
        self, *names: str, environments: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    ) -> list[MemberProcess]:
        """Start nodes at once that form a cluster by their configuration, and return them.

        environments: what some of them have in theirs, by name.
        """
        nodes = [self.make(name) for name in names]
        for name, node in zip(names, nodes, strict=True):
            node.environment.update(environments.get(name, {}))
        formation = ",".join(node.seed for node in nodes)
        for node in nodes:
            node.formation = formation
            node.launch()
        for node in nodes:
            node.wait_ready()
        for node in nodes:
            until_running(node, nodes)
        return nodes

    def close(self) -> None:
        """Kill all nodes that still run."""
        for process in self.all:
            process.kill()


@contextmanager
def cluster_processes(directory: Path | None = None, *, is_forked: bool = True) -> Iterator[ClusterProcesses]:
    """Nodes that are killed at the end.   directory: theirs; None: one with a short path, which goes away with them."""
    with tempfile.TemporaryDirectory(prefix="fluffle-nodes-") as own:
        nodes = ClusterProcesses(directory or Path(own), is_forked=is_forked)
        try:
            yield nodes
        finally:
            nodes.close()


def until_running(node: MemberProcess, nodes: Sequence[MemberProcess]) -> None:
    """Wait until a node reports exactly these nodes as running."""
    names = {each.name for each in nodes}
    until(
        lambda: set(node.ask("cluster_status")["running_nodes"]) == names,
        f"{node.name} sees {sorted(names)} run",
    )
