"""Fluffle with its management on: `fluffle start` in a process of its own, alone or three of them."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from tests.kit.fluffle_cluster import FluffleCluster, FluffleNode
from tests.kit.network import ProxyNetwork
from tests.kit.ports import free_ports
from tests.kit.server_cluster import NAMES, SETTINGS, Cluster


class ManagedNode(FluffleNode):
    """A node with an HTTP API and metrics for Prometheus on ports of its own."""

    def __init__(self, name: str, directory: Path, network: ProxyNetwork | None = None) -> None:
        super().__init__(name, directory, network)
        http_port, self._prometheus_port = free_ports(2)
        self.management_url = f"http://{self.host}:{http_port}"
        self.prometheus_url = f"http://{self.host}:{self._prometheus_port}"
        self.management = f"{self.host}:{http_port}"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the configuration: keys of rabbitmq.conf."""
        prometheus = {"prometheus.tcp.ip": self.host, "prometheus.tcp.port": str(self._prometheus_port)}
        super().configure({**prometheus, **settings})


class ManagedFluffle(ManagedNode):
    """A single running node. It implements `Server`.   plugins: those that are enabled beside management."""

    def __init__(self, settings: Mapping[str, str], plugins: Sequence[str] = ()) -> None:
        self._parent = tempfile.TemporaryDirectory(prefix="fluffle-managed-")
        super().__init__("managed", Path(self._parent.name))
        if plugins:
            names = ",".join((*plugins, "rabbitmq_management", "rabbitmq_prometheus"))
            (Path(self._parent.name) / "managed" / "enabled_plugins").write_text(f"[{names}].")
        self.configure(settings)
        self.launch()
        try:
            self.await_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        super().stop()
        self._parent.cleanup()


def start_managed_cluster(
    settings: Mapping[str, str] | None = None, names: Sequence[str] = NAMES, *, can_be_cut: bool = False
) -> Cluster:
    """Start a cluster of managed nodes."""
    return FluffleCluster.form(
        {**SETTINGS, **(settings or {})}, names, can_be_cut=can_be_cut, kind=ManagedNode
    )


def managed(cluster: Cluster) -> list[ManagedNode]:
    """The nodes of the cluster, as `ManagedNode`."""
    return [cast(ManagedNode, node) for node in cluster.nodes]
