"""Nodes of a cluster, each a process of its own on loopback, asked over their control sockets."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from node.io.control import ControlError, request
from tests.adversity.node_process import ROOT
from tests.kit.ports import free_port

START_S: Final = 40.0
WAIT_S: Final = 30.0
HOST: Final = "127.0.0.1"


def until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except ControlError:
            pass
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


class Process:
    """One node: `NAME@localhost`, in `directory/NAME`."""

    def __init__(self, directory: Path, name: str, *, command: str = "start", is_plain: bool = False) -> None:
        self.name = f"{name}@localhost"
        self.directory = directory
        self.data = directory / name
        self.port = free_port()
        self.peer_port = free_port()
        self.command = command
        self.is_plain = is_plain
        self.formation = ""
        self.extra: list[str] = []
        self.environment: dict[str, str] = {}
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def seed(self) -> str:
        """As cluster_formation names it."""
        return f"{self.name}:{self.peer_port}"

    @property
    def log(self) -> str:
        """What the last start has logged."""
        return (self.directory / f"{self.name}.{self.starts}.log").read_text(errors="replace")

    def launch(self) -> None:
        """Start it, and don't wait."""
        assert self._process is None
        self.starts += 1
        command = [sys.executable, "-m", "node", self.command, "--name", self.name, "--data", str(self.data)]
        if self.command == "start":
            command += ["--listen", f"{HOST}:{self.port}", "--management", "off"]
        if not self.is_plain:
            command += ["--peer", f"{HOST}:{self.peer_port}"]
        command += self.extra
        environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.directory), **self.environment}
        if self.formation:
            environ["FLUFFLE_CLUSTER_NODES"] = self.formation
        with (self.directory / f"{self.name}.{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it serves."""
        until(lambda: self.ask("status")["is_running"], f"{self.name} serves: {self.log[-3000:]}", START_S)

    def ask(self, operation: str, *, timeout_s: float = 30.0, **arguments: object) -> Any:
        """A control operation. Raises: ControlError."""
        assert self._process is None or self._process.poll() is None, self.log[-3000:]
        return request(str(self.data), operation, arguments, timeout_s=timeout_s)

    def fails(self, operation: str, **arguments: object) -> tuple[int, str]:
        """A control operation that is refused: exit code and text."""
        try:
            result = self.ask(operation, **arguments)
        except ControlError as error:
            return error.exit_code, error.text
        raise AssertionError(f"{operation} gave {result}")

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit code."""
        assert self._process is not None
        code = self._process.wait(40)
        self._process = None
        return code


class Processes:
    """Nodes that are killed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.all: list[Process] = []

    def make(self, name: str, **options: Any) -> Process:
        """One more, not started yet."""
        process = Process(self.directory, name, **options)
        self.all.append(process)
        return process

    def formed(
        self, *names: str, environments: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    ) -> list[Process]:
        """Nodes that form a cluster by their configuration, started all at once.

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
        """Kill what is left."""
        for process in self.all:
            process.kill()


def until_running(node: Process, nodes: Sequence[Process]) -> None:
    """Wait until a node sees that these run, and no others."""
    names = {each.name for each in nodes}
    until(
        lambda: set(node.ask("cluster_status")["running_nodes"]) == names,
        f"{node.name} sees {sorted(names)} run",
    )
