"""A cluster of Fluffle: a process for each node, formed by `cluster_formation.classic_config` as an operator would."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from node.io.control import ControlError, request
from tests.chaos.network import ProxyNetwork
from tests.conformance.cluster_api import Cluster, Ctl, Replicas
from tests.conformance.fluffle_process import ROOT, _RemoteAdmin
from tests.kit.patience import patience
from tests.kit.ports import free_ports

if TYPE_CHECKING:
    from tests.conformance.servers import Admin

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 20.0


class FluffleNode:
    """One node. Implements `ClusterNode`."""

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
        self.options: list[str] = []

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
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """What the process has printed, in all its lives."""
        return (self._directory / "stderr").read_text(errors="replace")

    def launch(self) -> None:
        if self._network is not None:
            self._network.starts(short(self.name))
        listen, peer = f"{self.host}:{self.port}", f"{self.host}:{self.peer_port}"
        with open(self._directory / "stderr", "ab") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.conformance.cluster_node_process", "--name", self.name),
                    *("--data", self.data, "--listen", listen, "--peer", peer),
                    *("--config", str(self._directory / "fluffle.conf"), *self.options),
                ],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        if self._network is not None:
            self._network.started(short(self.name), self._process.pid)

    @property
    def data(self) -> str:
        return str(self._directory / "data")

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S * patience()
        while self.name not in self.running():
            if not self.is_alive or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self.log[-4000:]}")
            time.sleep(0.05)

    def terminate(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} does not end:\n{self.log[-4000:]}") from None

    def kill(self) -> None:
        if self._network is not None:
            self._network.ends(short(self.name))
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.is_alive:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.is_alive:
            self.thaw()
            self.kill()
        keep = os.environ.get("FLUFFLE_TEST_KEEP_LOGS")
        if keep:
            Path(keep).mkdir(parents=True, exist_ok=True)
            shutil.copy(self._directory / "stderr", Path(keep) / f"{self.name}-{self.port}.log")
        shutil.rmtree(self._directory, ignore_errors=True)

    # The operator.

    @property
    def admin(self) -> "Admin":
        return cast("Admin", _RemoteAdmin(self._ask))

    def ctl(self, *arguments: str, timeout_s: float = 60.0) -> Ctl:
        done = subprocess.run(
            [sys.executable, "-m", "node", "ctl", "--data", self.data, *arguments],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
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
        return cast(str, self._ask("home", [queue, vhost]))

    def homes(self) -> list[str]:
        return cast(list[str], self._ask("homes"))

    def replicas(self, queue: str, vhost: str = "/") -> Replicas:
        master, mirrors, synced = self._ask("replicas", [queue, vhost])
        return Replicas(master, frozenset(mirrors), frozenset(synced))

    def sync(self, queue: str) -> None:
        self._request("sync_queue", vhost="/", queue=queue)

    def cancel_sync(self, queue: str) -> None:
        self._request("cancel_sync_queue", vhost="/", queue=queue)

    def rebalance(self) -> None:
        self._request("rebalance", type="all", vhost_pattern=".*", queue_pattern=".*")

    def _request(self, operation: str, **arguments: object) -> None:
        """What `ctl` asks, without the time of its start."""
        try:
            request(self.data, operation, arguments, timeout_s=60.0)
        except ControlError as error:
            raise RuntimeError(f"{operation} of {self.name}: {error.text}") from error

    def running(self) -> set[str]:
        try:
            return set(self._ask("running"))
        except (OSError, RuntimeError):
            return set()

    def _ask(self, call: str, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([call, arguments, named or {}]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended:\n{self.log[-4000:]}")
        answer = json.loads(line)
        if "refused" in answer:
            raise RuntimeError(answer["refused"])
        return answer["result"]


def short(name: str) -> str:
    """The part of a node's name before the @."""
    return name.partition("@")[0]


class FluffleCluster:
    """Makes clusters of them."""

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
