"""A `Site` for a single broker without disk and sockets, and calls to its handlers."""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from node.admin.admin import Admin
from node.broker.broker import Broker
from node.config.config import Config, ManagementConfig
from node.management.dispatcher import Dispatcher, Incoming
from node.management.reply import Reply
from node.management.resources import all_routes
from node.management.routes import Route
from node.management.site import SiteNode
from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from node.statistics.statistics import Statistics, StatisticsOptions
from tests.kit.world import World

NODE = "node@test"


class FakeSite:
    """One node whose broker runs.   operations: the requests to the control socket."""

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or World().broker
        self.config = Config(NODE, "/nowhere", "test")
        self.node: Any = SimpleNamespace(broker=self.broker, config=self.config, services=None)
        self.statistics = Statistics(self.broker, StatisticsOptions())
        self.operations: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Mapping[str, Any]] = []
        self.is_serving = True

    def admin(self, by: str) -> Admin:
        return Admin(self.broker, self.config, logging.getLogger("test"), by)

    def is_ready(self) -> bool:
        return self.is_serving and self.node is not None

    def status(self) -> dict[str, Any]:
        return {"node": NODE, "listeners": [], "alarms": []}

    def cluster_status(self) -> dict[str, Any]:
        return {"cluster_name": "test", "disk_nodes": [NODE], "ram_nodes": [], "running_nodes": [NODE]}

    def members(self) -> list[SiteNode]:
        return [SiteNode(NODE, "disc", True)]

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        raise NotImplementedError(question)

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def rows(self, kind: Kind, query: Query, nodes: Iterable[str] | None = None) -> list[Row]:
        return list(self.statistics.rows(kind, query))

    async def operate(self, operation: str, arguments: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        self.operations.append((operation, dict(arguments)))
        return {}

    def places(self) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
        return {}, {}

    def mirroring_events(self) -> Sequence[Mapping[str, Any]]:
        return self.events


class Caller:
    """Sends requests to a dispatcher, as the user guest from this machine or as headers say."""

    def __init__(
        self,
        site: FakeSite | None = None,
        config: ManagementConfig | None = None,
        routes: Iterable[Route] | None = None,
    ) -> None:
        self.site = site or FakeSite()
        routes = all_routes() if routes is None else routes
        self._dispatcher = Dispatcher(self.site, config or ManagementConfig(), routes)

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        peer: str = "127.0.0.1",
    ) -> Reply:
        """Return the answer to a request; `body` is sent as JSON unless it is bytes."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()

        async def read() -> bytes:
            return data

        sent = {"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "host": "localhost:15672", **(headers or {})}
        sent = {name: value for name, value in sent.items() if value}
        return asyncio.run(self._dispatcher.answer(Incoming(method, target, sent, (peer, 5000), read)))
