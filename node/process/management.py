"""The process's part of management is the statistics of the broker that runs, and the listeners for HTTP.

    broker starts ─► Statistics, sampled every few seconds ─┐
    other nodes ───► questions ─────────────────────────────┼─► Site ─► HTTP API, metrics
    operators ─────► operations ────────────────────────────┘

The listeners live as long as the process, so that a balancer is told when the broker does not run. With both off
nothing of the web server is imported; a node of a cluster keeps statistics all the same, as others may ask for them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from node.admin.admin import Admin
from node.app import Node
from node.clustering.questions import Questions
from node.config.config import Config
from node.io.log_lines import LogLines
from node.io.loop_lag import Longest
from node.io.mirroring_events import MirroringEvents
from node.io.turns import next_slice, taken
from node.management.node_facts import LOOP_LAG_US, measure
from node.management.site import SiteNode
from node.process import status
from node.process.answers import answers
from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from node.statistics.series import Retention
from node.statistics.statistics import Statistics, StatisticsOptions
from node.statistics.sums import add_up

if TYPE_CHECKING:
    from node.management.listeners import Listeners
    from node.process.agent import Agent


RECENT_S: Final = 60.0
"""The period of the longest lag: longer than Prometheus's usual interval, so that every scraper sees it."""


class Management:
    """The `Site` of one process. `await start()`, `await close()`; in between `attach` and `detach` brokers."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self.questions = Questions(
            agent.config.node_name, answers(agent), lambda: agent.cluster, agent.logger
        )
        self.events = MirroringEvents()
        """The mirroring events of all brokers of this process."""
        self.log_lines = LogLines()
        """The last lines of the log, kept between `start` and `close` if management is on."""
        self._statistics: Statistics | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._longest: Longest | None = None
        self.loop_lag_ms = 0.0
        """The longest time that the event loop was held in the last interval of the statistics, in milliseconds."""
        self._recent_lags: deque[tuple[float, float]] = deque()
        """For each interval that ended in the last RECENT_S, its end and its longest lag in milliseconds."""
        self._listeners: Listeners | None = None

    # --- the whole ---

    async def start(self) -> None:
        """Listen for HTTP requests as configured. Raises: OSError."""
        config = self._agent.config
        if config.management.is_on:
            self.log_lines.start()
        if not (config.management.is_on or config.prometheus.is_on):
            return
        from node.management.listeners import Listeners

        self._listeners = Listeners(self, self._agent.logger)
        await self._listeners.start()

    async def close(self) -> None:
        """Close the listeners, and stop the statistics."""
        self.detach()
        self.log_lines.stop()
        if self._listeners is not None:
            await self._listeners.close()

    @property
    def listeners(self) -> list[tuple[str, str, int]]:
        """Protocol, host and port of each listener, as `status` shows them."""
        return [] if self._listeners is None else self._listeners.places

    def attach(self, node: Node) -> None:
        """Keep statistics of a broker that runs now."""
        self.detach()
        options = _options(node.config, is_on=self._is_asked)
        self._statistics = Statistics(
            node.broker,
            options,
            measure=lambda: self._measure(node),
            links=lambda: status.link_octets(self._agent),
        )
        if not self._is_asked:
            return
        self._longest = self._agent.lag.watch()
        self._sampling = asyncio.get_running_loop().create_task(self._sample(self._statistics))
        self._sampling.add_done_callback(self._sampled)

    def detach(self) -> None:
        """Keep no more statistics, as the broker stops."""
        if self._longest is not None:
            self._agent.lag.leave(self._longest)
            self._longest = None
        self._recent_lags.clear()
        if self._sampling is not None:
            self._sampling.cancel()
        self._sampling = self._statistics = None

    def _measure(self, node: Node) -> dict[str, int]:
        if self._longest is not None:
            self.loop_lag_ms = self._longest.take_ms()
            self._recent_lags.append((time.monotonic(), self.loop_lag_ms))
            self._forget_lags()
        return {**measure(node), LOOP_LAG_US: round(self.loop_lag_ms * 1000)}

    def _forget_lags(self) -> None:
        while self._recent_lags and self._recent_lags[0][0] < time.monotonic() - RECENT_S:
            self._recent_lags.popleft()

    @property
    def longest_lag_ms(self) -> float:
        """The longest time that the event loop was held in the last RECENT_S and until now, in milliseconds."""
        self._forget_lags()
        present = 0.0 if self._longest is None else self._longest.ms
        return max([present, *(lag_ms for _, lag_ms in self._recent_lags)])

    @property
    def _is_asked(self) -> bool:
        """True if statistics may be asked for: by an HTTP client of this node or of another one."""
        config = self._agent.config
        return config.management.is_on or config.prometheus.is_on or self._agent.is_clusterable

    async def _sample(self, statistics: Statistics) -> None:
        interval_s = statistics.options.interval_s
        next_s = time.monotonic() + interval_s
        while True:
            await asyncio.sleep(next_s - time.monotonic())
            for _ in statistics.sample(time.monotonic(), time.time_ns() // 1_000_000):
                await next_slice()
            next_s = max(next_s + interval_s, time.monotonic() + interval_s / 2)

    def _sampled(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._agent.logger.critical("statistics are kept no longer: %r", fault, exc_info=fault)
            self._agent.ask_to_stop()

    # --- Site ---

    @property
    def config(self) -> Config:
        """The configuration of the node."""
        return self._agent.config

    @property
    def node(self) -> Node | None:
        """The broker that runs; None also while the node is paused."""
        return None if self._agent.is_paused else self._agent.node

    @property
    def statistics(self) -> Statistics:
        """The statistics of the broker that runs. The caller has checked that there is one."""
        assert self._statistics is not None, "no broker runs"
        return self._statistics

    def admin(self, by: str) -> Admin:
        """Return the administration of the broker that runs.   by: the user whom the log names."""
        node = self._agent.node
        assert node is not None, "no broker runs"
        return Admin(node.broker, node.config, self._agent.logger, by)

    def is_ready(self) -> bool:
        """Return whether the node serves: it listens, is not in maintenance, and its message disk is not stuck."""
        cluster = self._agent.cluster
        if cluster is not None and cluster.message_disk.is_stuck:
            return False
        return self.node is not None and bool(self._agent.listeners) and not self._agent.is_draining

    def status(self) -> dict[str, Any]:
        """Return the result of the operation `status`."""
        return status.node_status(self._agent)

    def cluster_status(self) -> dict[str, Any]:
        """Return the result of the operation `cluster_status`."""
        return status.cluster_status(self._agent)

    def members(self) -> list[SiteNode]:
        """Return the members that can run a broker, this node first."""
        own, found = self._agent.config.node_name, status.cluster_status(self._agent)
        running = found["running_nodes"]
        members = [
            SiteNode(name, node_type, name in running)
            for node_type in ("disc", "ram")
            for name in found["ram_nodes" if node_type == "ram" else "disk_nodes"]
        ]
        return sorted(members, key=lambda each: (each.name != own, each.name))

    async def ask(self, node: str, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return one node's answer to a question. Raises: ControlError."""
        return await self.questions.ask(node, question, arguments)

    async def ask_all(self, question: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers of all nodes that run, by node. A node that fails is left out."""
        return await self.questions.ask_all(question, arguments)

    async def rows(self, kind: Kind, query: Query, nodes: Iterable[str] | None = None) -> list[Row]:
        """Return the rows of all nodes, or of these; rows of several nodes with the same id are added up."""
        arguments = {"kind": kind, "query": query.as_json()}
        answers = await self.questions.ask_all("rows", arguments, nodes)
        if len(answers) == 1:
            return list(*answers.values())
        parts: dict[str, list[Row]] = {}
        for answer in answers.values():
            for row in answer:
                parts.setdefault(row["id"], []).append(row)
        return await taken(each[0] if len(each) == 1 else add_up(each) for each in parts.values())

    async def operate(self, operation: str, arguments: Mapping[str, Any], timeout_s: float = 60.0) -> Any:
        """Carry out an operation as `fluffle ctl` would. Raises: ControlError; TimeoutError after `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            return await self._agent.operations.handle(operation, dict(arguments), timeout_s)

    def places(self) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
        """Return the zones and labels of all nodes that are up and have some."""
        return status.places(self._agent)


def _options(config: Config, *, is_on: bool) -> StatisticsOptions:
    kept = config.statistics
    return StatisticsOptions(
        interval_s=kept.interval_s,
        rates_mode=kept.rates_mode,
        is_on=is_on,
        retention=Retention.of(kept.retention_global, kept.retention_basic, kept.retention_detailed),
    )
