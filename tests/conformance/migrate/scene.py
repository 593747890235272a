"""The scene of a rehearsal: three nodes of RabbitMQ, three of Fluffle, HAProxy, and the directory of a migration."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from tests.kit.haproxy import PROGRAM
from tests.kit.http_api import HttpApi
from tests.kit.managed_fluffle import managed, start_managed_cluster
from tests.kit.network import HOST
from tests.kit.patience import patience, wait_until
from tests.kit.ports import free_ports
from tests.kit.rabbit_cluster import RabbitCluster, RabbitNode
from tests.kit.server_cluster import NAMES, SETTINGS, Cluster
from tests.kit.server_process import ROOT

COMMAND_S: Final = 240.0
"""A command may take this long; only a failing test waits so long."""

SHOVEL_PLUGINS: Final = ("rabbitmq_shovel", "rabbitmq_shovel_management")


class Scene:
    """Both clusters and what is between them and their clients.   state: the directory of the migration that is run."""

    state = "state"

    def __init__(self, directory: Path, rabbitmq: Cluster, fluffle: Cluster) -> None:
        self.directory = directory
        self.rabbitmq = rabbitmq
        self.fluffle = fluffle
        self.old = HttpApi(cast(RabbitNode, rabbitmq[0]))
        self._balancer: subprocess.Popen[bytes] | None = None
        [self.port] = free_ports(1)
        self.said: list[str] = []

    # --- the command ---

    def run(self, *words: str, code: int | None = 0) -> str:
        """Run `fluffle migrate WORDS`, and return what it prints. It must end with that code."""
        done = subprocess.run(
            [sys.executable, "-m", "node", "migrate", *words, "--state", str(self.directory / self.state)],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S * patience(),
            text=True,
            check=False,
        )
        self.said.append(f"$ fluffle migrate {' '.join(words)}\n{done.stdout}")
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def plan(self, *more: str, code: int = 0) -> str:
        """Make the plan."""
        urls = [cast(RabbitNode, node).management_url for node in self.rabbitmq.nodes]
        to = [node.management_url for node in managed(self.fluffle)]
        return self.run("plan", ",".join(urls), "--to", ",".join(to), *more, code=code)

    def enable_shovels(self) -> None:
        """Enable the shovels of Fluffle."""
        node = managed(self.fluffle)[0]
        command = [sys.executable, "-m", "node", "plugins", "--data", node.data, "enable", *SHOVEL_PLUGINS]
        environment = {**node._environment, "PYTHONPATH": str(ROOT)}

        def is_done() -> bool:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
            return done.returncode == 0

        # A node that is short of time pauses, and takes no orders then.
        wait_until(is_done, "the shovels of Fluffle are enabled")

    def progress(self) -> dict[str, Any]:
        """The object that `watch --once` shows."""
        return cast("dict[str, Any]", json.loads(self.run("watch", "--once", "--json")))

    # --- the balancer ---

    def start_balancer(self, backend: Sequence[str]) -> None:
        """Start HAProxy with the lines of a backend that the command has printed."""
        assert PROGRAM is not None
        lines = [
            "global",
            f"    stats socket {self._socket} level admin",
            "defaults",
            "    mode tcp",
            "    timeout connect 2s",
            "    timeout client 1h",
            "    timeout server 1h",
            "    retries 2",
            "    option redispatch",
            "frontend amqp",
            f"    bind {HOST}:{self.port}",
            "    default_backend brokers",
            *backend,
        ]
        config = self.directory / "haproxy.cfg"
        config.write_text("".join(f"{line}\n" for line in lines))
        with open(self.directory / "haproxy.log", "wb") as log:
            self._balancer = subprocess.Popen(
                [PROGRAM, "-f", str(config)], stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(self._can_connect, lambda: (self.directory / "haproxy.log").read_text())

    def _can_connect(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
            return True
        return False

    @property
    def _socket(self) -> Path:
        return self.directory / "admin.sock"

    def stop(self) -> None:
        """Stop the balancer and both clusters."""
        if self._balancer is not None:
            self._balancer.terminate()
            self._balancer.wait()
        self.rabbitmq.stop()
        self.fluffle.stop()


def balancer_lines(printed: str) -> list[str]:
    """The lines of haproxy.cfg that a step has printed, without their `#`."""
    return [line.removeprefix("#      ") for line in printed.splitlines() if line.startswith("#      ")]


def shell_lines(printed: str, begin: str) -> list[str]:
    """The commands that a step has printed, those that begin with a word."""
    return [line for line in printed.splitlines() if line.startswith(begin)]


@contextmanager
def scene(directory: Path, fill: Callable[[Scene], None]) -> Iterator[Scene]:
    """Both clusters, RabbitMQ's filled by `fill`."""
    rabbitmq = RabbitCluster.form(SETTINGS, NAMES, plugins=SHOVEL_PLUGINS)
    try:
        fluffle = start_managed_cluster()
    except BaseException:
        rabbitmq.stop()
        raise
    found = Scene(directory, rabbitmq, fluffle)
    try:
        wait_until(lambda: found.old.get("/overview").status == 200, "RabbitMQ's API")
        fill(found)
        yield found
    finally:
        found.stop()
