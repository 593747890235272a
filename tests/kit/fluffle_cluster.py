"""A cluster of Fluffle: a process for each node, formed by `cluster_formation.classic_config` as an operator would."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from node.io.control import ControlError, request
from tests.kit.forked_process import run_command
from tests.kit.network import ProxyNetwork
from tests.kit.node_process import start_command
from tests.kit.operated_process import OperatedProcess
from tests.kit.patience import patience
from tests.kit.ports import free_ports
from tests.kit.server_cluster import Cluster, Ctl, Replicas

if TYPE_CHECKING:
    from tests.kit.servers import Admin

START_TIMEOUT_S: Final = 30.0


class FluffleNode:
    """A node of a Fluffle cluster. It implements `ClusterNode`."""

    def __init__(self, name: str, directory: Path, network: ProxyNetwork | None = None) -> None:
        self.name = f"{name}@localhost"
        self.host = "127.0.0.1"
        self._network = network
        self.port, self.peer_port = free_ports(2)
        self.told_port = self.peer_port
        if network is not None:
            place = network.place(name)
            self.port, self.peer_port = place.port, int(place.peer.rpartition(":")[2])
            self.told_port = int(place.advertised.rpartition(":")[2])
        self._directory = directory / name
        self._directory.mkdir()
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(directory)}
        self.management = ""
        self._process = OperatedProcess(self._directory, "node")

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the configuration: keys of rabbitmq.conf."""
        own = dict(settings)
        if self._network is not None:
            own["cluster.advertised_address"] = f"{self.host}:{self.told_port}"
        lines = [f"{key} = {value}\n" for key, value in own.items()]
        (self._directory / "fluffle.conf").write_text("".join(lines))

    # The process.

    @property
    def is_alive(self) -> bool:
        return self._process.is_running

    def launch(self) -> None:
        if self._network is not None:
            self._network.starts(short(self.name))
        command = start_command(
            self.name,
            self.data,
            listen=f"{self.host}:{self.port}",
            management=self.management,
            peer=f"{self.host}:{self.peer_port}",
            config=self._directory / "fluffle.conf",
            program=("-m", "tests.kit.operated_node"),
        )
        self._process.launch(command, self._environment)
        if self._network is not None:
            self._network.started(short(self.name), self._process.pid)

    @property
    def data(self) -> str:
        return str(self._directory / "data")

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S * patience()
        while self.name not in self.running():
            if not self.is_alive or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self._process.log_text()[-4000:]}")
            time.sleep(0.05)

    def terminate(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        if self._network is not None:
            self._network.ends(short(self.name))
        self._process.kill()

    def freeze(self) -> None:
        self._process.freeze()

    def thaw(self) -> None:
        self._process.thaw()

    def stop(self) -> None:
        if self.is_alive:
            self.thaw()
            self.kill()
        keep = os.environ.get("FLUFFLE_TEST_KEEP_LOGS")
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            (Path(keep) / f"{self.name}-{self.port}.log").write_text(self._process.all_log_text())
        shutil.rmtree(self._directory, ignore_errors=True)

    # The operator.

    @property
    def admin(self) -> "Admin":
        return self._process.admin

    def ctl(self, *arguments: str, timeout_s: float = 60.0) -> Ctl:
        command = [sys.executable, "-m", "node", "ctl", "--data", self.data, *arguments]
        done = run_command(command, self._environment, timeout_s)
        return Ctl(done.returncode, done.stdout, done.stderr)

    def stop_app(self) -> None:
        self._must("stop_app")

    def start_app(self) -> None:
        self._must("start_app")

    def drain(self) -> None:
        self._must("drain")

    def revive(self) -> None:
        self._must("revive")

    def _must(self, command: str) -> None:
        done = self.ctl(command)
        if done.code:
            raise RuntimeError(f"{command} of {self.name}: {done}")

    def home(self, queue: str, vhost: str = "/") -> str:
        return cast(str, self._process.call("home", [queue, vhost]))

    def homes(self) -> list[str]:
        return cast(list[str], self._process.call("homes"))

    def replicas(self, queue: str, vhost: str = "/") -> Replicas:
        master, mirrors, synced = self._process.call("replicas", [queue, vhost])
        return Replicas(master, frozenset(mirrors), frozenset(synced))

    def sync(self, queue: str) -> None:
        self._request("sync_queue", vhost="/", queue=queue)

    def cancel_sync(self, queue: str) -> None:
        self._request("cancel_sync_queue", vhost="/", queue=queue)

    def rebalance(self) -> None:
        self._request("rebalance", type="all", vhost_pattern=".*", queue_pattern=".*")

    def _request(self, operation: str, **arguments: object) -> None:
        """Send a request as `ctl` does, without the cost of starting it."""
        try:
            request(self.data, operation, arguments, timeout_s=60.0)
        except ControlError as error:
            raise RuntimeError(f"{operation} of {self.name}: {error.text}") from error

    def running(self) -> set[str]:
        try:
            return set(self._process.call("running"))
        except (OSError, RuntimeError):
            return set()


def short(name: str) -> str:
    """Return the part of a node's name before the @."""
    return name.partition("@")[0]


class FluffleCluster:
    """Makes clusters of Fluffle nodes."""

    @staticmethod
    def separate(settings: Mapping[str, str], names: Sequence[str]) -> Cluster:
        return _launch(settings, names, {})

    @staticmethod
    def form(
        settings: Mapping[str, str],
        names: Sequence[str],
        *,
        can_be_cut: bool = False,
        kind: type[FluffleNode] = FluffleNode,
    ) -> Cluster:
        formation = {"cluster_formation.peer_discovery_backend": "classic_config"}
        cluster = _launch(settings, names, formation, ProxyNetwork() if can_be_cut else None, kind)
        cluster.await_members()
        return cluster


def _launch(
    settings: Mapping[str, str],
    names: Sequence[str],
    formation: dict[str, str],
    network: ProxyNetwork | None = None,
    kind: type[FluffleNode] = FluffleNode,
) -> Cluster:
    """Start the nodes.

    formation: keys that make them find each other, to which the nodes are added.
    network: what their links go through. It has places for nodes of these names.
    """
    directory = Path(tempfile.mkdtemp(prefix="fluffle-cluster-"))
    nodes = [kind(name, directory, network) for name in names]

    def close() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if network is not None:
            network.close()

    cluster = Cluster(nodes, close)
    if network is not None:
        proxies = network
        cluster.use_network(
            lambda pairs: proxies.cut([(short(one), short(other)) for one, other in pairs], "reset"),
            proxies.heal,
        )
    if formation:
        for number, node in enumerate(nodes, 1):
            formation[f"cluster_formation.classic_config.nodes.{number}"] = f"{node.name}:{node.told_port}"
    for node in nodes:
        node.configure({**settings, **formation})
        node.launch()
    try:
        for node in nodes:
            node.await_ready()
    except BaseException:
        cluster.stop()
        raise
    return cluster
