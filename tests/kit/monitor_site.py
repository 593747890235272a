"""A `Site` with facts of a node, for the overview, nodes, health checks and metrics."""

import os
from collections.abc import Mapping
from typing import Any

from node.amqp.methods import BasicGet, QueueDeclare
from node.io.mirroring_events import MirroringEvents
from node.management.node_facts import node_facts
from node.management.prometheus import Wanted
from node.management.site import SiteNode
from node.statistics.query import Query
from tests.kit.fake_site import NODE, FakeSite
from tests.kit.world import World


def listener(protocol: str, port: int) -> dict[str, Any]:
    """Return a listener as in `node.process.status`."""
    return {"interface": "127.0.0.1", "node": NODE, "port": port, "protocol": protocol, "purpose": "x"}


class MonitorSite(FakeSite):
    """other_nodes: members that don't run.   alarms: as in `cluster_status`.   refuses: questions nobody answers."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        super().__init__(self.world.broker)
        self.node.mirroring_events = MirroringEvents()
        self.other_nodes: list[SiteNode] = []
        self.alarms: list[dict[str, str]] = []
        self.listeners = [
            listener("amqp", 5672),
            listener("http", 15672),
            listener("https/prometheus", 15691),
        ]
        self.is_draining = self.is_paused = self.is_booting = False

    def status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "uptime": 12,
            "file_descriptors": {
                "total_limit": 1000,
                "total_used": 9,
                "sockets_limit": 900,
                "sockets_used": 0,
            },
            "vm_memory_high_watermark_limit": 10**12,
            "vm_memory_calculation_strategy": "rss",
            "disk_free_limit": 50_000_000,
            "run_queue": 0,
            "loop_lag_ms": 1.5,
            "loop_lag_longest_ms": 2.5,
            "net_ticktime": 4.0,
            "listeners": self.listeners,
            "log_files": ["<stderr>"],
            "data_directory": "/data",
            "config_files": ["/c.conf"],
            "raft_data_directory": "",
            "is_draining": self.is_draining,
            "is_paused": self.is_paused,
            "is_booting": self.is_booting,
            "erlang_version": "25.2.3",
            "release_series_support_status": "supported",
        }

    def cluster_status(self) -> dict[str, Any]:
        return {"listeners": {NODE: self.listeners}, "alarms": self.alarms, "partitions": {}}

    def members(self) -> list[SiteNode]:
        return [SiteNode(NODE, "disc", True), *self.other_nodes]

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        query = Query.from_json(arguments.get("query") or {})
        match question:
            case "node":
                return node_facts(self.node, self.status(), self.statistics, query)
            case "totals":
                return self.statistics.totals(query)
            case "mirroring_events":
                return self.node.mirroring_events.latest()
            case "forget_auth_attempts":
                self.broker.counters.auth_attempts.clear()
                return None
        raise NotImplementedError(question)

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {NODE: await self.ask(NODE, question, arguments)}


SUMS = Wanted("default", is_per_object=False)


def busy_site() -> MonitorSite:
    """Queues a and b of `/`: two messages in a, one of them with a client, and one got for good."""
    world = World()
    site = MonitorSite(world)
    client = world.client()
    for name in ("a", "b"):
        client.ask(1, QueueDeclare(queue=name))
    client.publish(1, "a", b"12345", b"12345", b"12345")
    client.publish(1, "nowhere", b"x")
    client.send(1, BasicGet(queue="a", no_ack=True))
    client.send(1, BasicGet(queue="a"))
    client.send(1, BasicGet(queue="b"))
    world.settle()
    return site
