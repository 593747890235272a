"""Three nodes as `fluffle start` runs them: killed, frozen, stopped, cut off, started again on the same data."""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from node.io.control import ControlError, request
from tests.chaos.broker import FLUFFLE, SERVES_S, START_S, NodeFailed
from tests.chaos.broker_process import BrokerProcess, Launch
from tests.chaos.watched_node import WATCHDOG
from tests.kit.cluster_client import ClusterClient
from tests.kit.network import NAMES, Network
from tests.kit.node_process import start_command
from tests.kit.patience import patience
from tests.kit.ports import free_port
from tests.kit.server_process import ROOT

EXPECTED: Final[Mapping[int, Sequence[str]]] = {
    320: ("",),  # a node stops
    404: ("brief", "has no master", "is down or inaccessible", "not available", "process is stopped by"),
    406: ("has no majority",),
    541: ("",),
}
TRACEBACK: Final = re.compile(r"\[critical\]|Traceback \(most recent call last\)")
FAULT: Final = re.compile(r"\[(error|critical)\]|Traceback \(most recent call last\)")
ASKED_FOR: Final = re.compile(
    # What clients do, and what happens to them.
    r"Channel error on connection|channel exception not_found|channel exception precondition_failed"
    r"|(Error on|closing) (AMQP|MQTT|STOMP) connection|connection exception connection_forced"
    # What the faults are seen as.
    r"|is up, but this node cannot reach it \(network partition\)|the file ends inside a record"
    r"|the cluster did not record that within|\{handshake_timeout,"
    r"|the broker cannot start: the cluster did not agree on a change of metadata in time"
)
BORING: Final = re.compile(f"{ASKED_FOR.pattern}|accepting (AMQP|MQTT|STOMP)|user 'guest' authenticated")


class ChaosNode(BrokerProcess):
    """One node.   code: where the packages are that it runs.   is_managed: it has the HTTP API."""

    stop_s = 40.0

    def __init__(
        self, index: int, directory: Path, network: Network, code: Path, *, is_managed: bool = False
    ) -> None:
        super().__init__(index, directory, network)
        self._code = code
        self._management = f"{self.place.host}:{self.place.http_port}" if is_managed else "off"
        self.mqtt_port = free_port()
        """The address at which MQTT's clients are accepted, if its plug-in is enabled."""
        self.stomp_port = free_port()
        """The port of STOMP clients, if the plug-in is enabled."""

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write its fluffle.conf."""
        self._config_path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))

    @property
    def _config_path(self) -> Path:
        return self.directory / f"{self.short_name}.conf"

    @property
    def clock_path(self) -> Path:
        """If this file is there, the node's time of day differs by as many seconds as it says (`watchdog`)."""
        return self.directory / f"{self.short_name}.clock"

    def log_end(self) -> str:
        """The last lines of it that say something."""
        lines = [line for line in self.log_text().splitlines() if not BORING.search(line)]
        return "\n".join(lines[-30:])

    def _how_to_launch(self) -> Launch:
        command = start_command(
            self.name,
            self.data,
            listen=f"{self.place.host}:{self.place.port}",
            peer=self.place.peer,
            management=self._management,
            config=self._config_path,
            program=("-m", "tests.chaos.watched_node" if self._code == ROOT else "node", "start"),
        )
        environ = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.directory)}
        if self._code != ROOT:
            environ["PYTHONPATH"] = str(WATCHDOG)
        environ["FLUFFLE_CHAOS_CLOCK"] = str(self.clock_path)
        return Launch(command, self._code, environ)

    async def ask(self, operation: str, timeout_s: float = 60.0, **arguments: object) -> Any:
        """Ask an operation as `fluffle ctl` does, over the same socket. Raises: ControlError."""
        return await asyncio.to_thread(request, str(self.data), operation, arguments, timeout_s=timeout_s)

    def ctl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line itself."""
        command = [sys.executable, "-m", "node", "ctl", "--data", str(self.data), *arguments]
        return subprocess.run(command, cwd=self._code, capture_output=True, text=True, check=False)

    async def connect(self) -> ClusterClient:
        """A client of this node. Raises: Lost."""
        client = await ClusterClient.connect(self.place.host, self.place.port)
        client.node = self.index
        return client

    async def is_up(self) -> bool:
        """Whether it runs and sees all others running."""
        try:
            status = await self.ask("cluster_status", timeout_s=5)
        except (ControlError, OSError):
            return False
        return len(status["running_nodes"]) == len(NAMES) and self.name == status["running_nodes"][0]

    def faults_in_log(self, allowed: re.Pattern[str] = BORING) -> str:
        """Return faults in the log of the last start, with what stands around; empty: none."""
        lines = [
            line
            for line in self.log_text().splitlines()
            if not BORING.search(line) and not allowed.search(line)
        ]
        signs = [at for at, line in enumerate(lines) if FAULT.search(line)]
        if not signs:
            return ""
        return f"{self.log_path}:\n" + "\n".join(lines[max(0, signs[0] - 4) : signs[0] + 12])


class ChaosCluster:
    """The three of them.   directory: for data, configuration and logs; made and removed by who calls.

    has_ram: whether the last one is a RAM node.   is_managed: whether they have the HTTP API.
    has_mqtt: whether they listen for MQTT's clients once its plug-in is enabled.
    has_stomp: whether they listen for STOMP's clients once its plug-in is enabled.
    """

    kind = FLUFFLE
    expected = EXPECTED

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        code: Path = ROOT,
        has_ram: bool = False,
        is_managed: bool = False,
        has_mqtt: bool = False,
        has_stomp: bool = False,
    ) -> None:
        self.network = network
        self.nodes = [
            ChaosNode(index, directory, network, code, is_managed=is_managed) for index in range(len(NAMES))
        ]
        settings = {
            "cluster_partition_handling": "pause_minority",
            "cluster_formation.peer_discovery_backend": "classic_config",
            "loopback_users.guest": "false",
        }
        if network.is_beyond_loopback:
            secret = directory / "secret"
            secret.write_text(secrets.token_hex(16))
            secret.chmod(0o600)
            settings["cluster.secret_file"] = str(secret)
        for number, node in enumerate(self.nodes, 1):
            port = node.place.advertised.rpartition(":")[2]
            settings[f"cluster_formation.classic_config.nodes.{number}"] = f"{node.name}:{port}"
        for node in self.nodes:
            own = {**settings, "cluster.advertised_address": node.place.advertised}
            if has_mqtt:
                own["mqtt.listeners.tcp.default"] = f"{node.place.host}:{node.mqtt_port}"
            if has_stomp:
                own["stomp.listeners.tcp.default"] = f"{node.place.host}:{node.stomp_port}"
            if has_ram and node is self.nodes[-1]:
                own["cluster_formation.node_type"] = "ram"
            node.configure(own)

    async def start(self) -> None:
        """Start all, and wait until each sees each. Raises: NodeFailed."""
        for node in self.nodes:
            node.launch()
        await self.await_up(START_S)

    async def await_up(self, limit_s: float = SERVES_S) -> float:
        """Wait until each node runs and sees each. Returns: how long it took. Raises: NodeFailed."""
        since = time.monotonic()
        limit_s *= patience()
        while True:
            found = [await node.is_up() for node in self.nodes]
            if all(found):
                return time.monotonic() - since
            missing = [node for node, is_up in zip(self.nodes, found, strict=True) if not is_up]
            dead = [node for node in missing if not node.is_running]
            if dead or time.monotonic() > since + limit_s:
                which = dead[0] if dead else missing[0]
                what = "ended by itself" if dead else f"is not up within {limit_s:.0f} s"
                raise NodeFailed(
                    f"{which.name} {what}; {await self._seen()}; {which.log_path}: {which.log_end()}"
                )
            await asyncio.sleep(0.1)

    async def leader(self) -> ChaosNode | None:
        """The leader of the metadata, as a node that knows it says."""
        for node in self.nodes:
            try:
                name = (await node.ask("cluster_status", timeout_s=5))["leader"]
            except (ControlError, OSError):
                continue
            for each in self.nodes:
                if each.name == name:
                    return each
        return None

    async def clients(self) -> list[ClusterClient]:
        """A client of each node. Raises: Lost."""
        return [await node.connect() for node in self.nodes]

    def close(self) -> None:
        """End all processes."""
        for node in self.nodes:
            node.kill()

    async def _seen(self) -> str:
        seen = {}
        for node in self.nodes:
            try:
                status = await node.ask("cluster_status", timeout_s=5)
                names = ("running_nodes", "leader", "has_majority", "paused", "partitions")
                seen[node.short_name] = {name: status[name] for name in names}
            except (ControlError, OSError) as error:
                seen[node.short_name] = {"error": str(error)}
        return json.dumps(seen)
