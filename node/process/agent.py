"""The agent is the part of a process that lives from its start to its end, whether the broker in it runs or not.

    control socket ─► operations ─┐
    cluster (if there is one)    ─┼─► supervisor ─► Node, started and stopped again and again
    signals                      ─┘

A node without cluster settings is a broker with a control socket; nothing of links or Raft is imported then. One
that is *clusterable* keeps its metadata in Raft from its first start, a cluster of one until others join: that is
`node.clustering.cluster`.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from node.app import ClusterSide, Node
from node.clustering.errors import GivenUp
from node.clustering.requests import Body
from node.config.config import Config
from node.io.control import register, unregister
from node.io.control_server import ControlServer
from node.io.loop_lag import LoopLag
from node.log.log import category_logger
from node.process.client_claims import ClientClaims
from node.process.management import Management
from node.process.phases import Phase
from node.process.status import own_status
from node.process.supervisor import Supervisor
from node.store import directory

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster
    from node.telemetry.telemetry import Telemetry


class Verbs(Protocol):
    """The operations that operators may ask of a node, by name (`node.agent.operations`)."""

    async def handle(self, operation: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Carry out an operation and return its result. Raises: ControlError."""

    def begin(self, operation: str, timeout_s: float) -> None:
        """Begin a change whose end no caller waits for. Raises: ControlError."""


class Agent:
    """One process. `await start()`, then `await stop()`; it cannot be started again.

    make_verbs: makes the operations that the control socket and the HTTP API offer to operators.
    environ: where the registry of this machine's nodes is looked up (`node.io.control`).
    """

    def __init__(
        self,
        config: Config,
        make_verbs: "Callable[[Agent], Verbs]",
        logger: "logging.Logger | logging.LoggerAdapter[logging.Logger] | None" = None,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.logger = logger or category_logger()
        self.started_at = time.monotonic()
        self.is_draining = False
        self.cluster: Cluster | None = None
        """The node's part in its cluster: from `start` or `join_cluster` on, if the node is clusterable."""
        self.stopping = asyncio.Event()
        """Set when the process is to end: by a signal, or by the operation `stop`."""
        self.has_failed = False
        """True if the process ends because something has failed."""
        self.environ = environ
        self._waits_for = ""
        self._is_opening = True
        self._is_ending = False
        self.is_witness = config.cluster.node_type == "witness"
        """True if the node only votes on metadata, and runs no broker."""
        self.broker_supervisor = Supervisor(
            self._begin, self._end, self.logger, self.ask_to_stop, self._tell_others
        )
        self.operations = make_verbs(self)
        self.lag = LoopLag()
        self.management = Management(self)
        self.telemetry: Telemetry | None = None
        """The telemetry of the broker that runs, starts or stops; None if it is off."""
        self._control = ControlServer(config.data_dir, self.operations.handle)

    def ask_to_stop(self) -> None:
        """End the process, as something that it cannot run without has failed."""
        self.has_failed = True
        self.stopping.set()

    def _tell_others(self) -> None:
        """Publish this node's changed status to the other nodes soon."""
        if self.cluster is not None:
            self.cluster.publisher.soon()

    @property
    def answers(self) -> Mapping[str, Callable[[str, Body], Awaitable[Any]]]:
        """The handlers of other nodes' questions about clients and queues."""
        return self.management.questions.answers

    def own_status(self) -> dict[str, Any]:
        """Return the status of this node that other nodes are told."""
        return own_status(self)

    @property
    def node(self) -> Node | None:
        """The broker that runs; None if none does."""
        return self.broker_supervisor.node

    @property
    def listeners(self) -> list[tuple[str, int]]:
        """Hosts and ports on which AMQP clients are accepted; none while no broker runs."""
        return [] if self.node is None else self.node.listeners

    @property
    def tls_listeners(self) -> frozenset[tuple[str, int]]:
        """The members of `listeners` that require TLS."""
        return frozenset() if self.node is None else self.node.tls_listeners

    @property
    def is_paused(self) -> bool:
        """True if the broker was stopped because the node is cut off from the others."""
        return self.broker_supervisor.is_held

    @property
    def waits_for(self) -> str:
        """The event of other nodes that this node waits for, as the end of a sentence about it; empty: none."""
        if self.is_paused and self.cluster is not None:
            from node.clustering.waiting import FOR_A_MAJORITY, sentence

            because = self.cluster.majority_reasons()
            return sentence(FOR_A_MAJORITY, because) if because else ""
        return self._waits_for

    def wait_is(self, waits_for: str) -> None:
        """Record which event of other nodes a start is waiting for; empty: none."""
        self._waits_for = waits_for

    @property
    def phase(self) -> Phase:
        """The phase of its life that the node is in."""
        broker_supervisor = self.broker_supervisor
        if self._is_ending:
            return "ending"
        if self._is_opening:
            return "waiting" if self._waits_for else "opening"
        if broker_supervisor.node is not None:
            return "running"
        if broker_supervisor.is_booting and broker_supervisor.is_wanted:
            return "waiting" if self._waits_for else "starting"
        if broker_supervisor.is_changing and not broker_supervisor.is_wanted:
            return "stopping"
        if broker_supervisor.is_held:
            return "paused"
        return "starting" if broker_supervisor.is_wanted else "stopped"

    async def start(self, stopping: asyncio.Event | None = None) -> bool:
        """Answer on the control socket, and serve clients once the cluster permits it.

        stopping: ends the wait for other nodes. Returns: False if it did. Raises: OSError, ConfigError.
        """
        if stopping is not None:
            self.stopping = stopping
        await self._control.start()
        try:
            self._register()
            await self.management.start()
            if self.is_clusterable:
                await self.open_cluster()
            return await self._start_app()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> bool:
        """Stop the broker, announce that to the other nodes, and close everything.

        Returns: True if all that clients sent is on disk, and nothing has failed.
        """
        self._is_ending = True
        await self.management.close()
        is_written = await self.broker_supervisor.close()
        await self.close_cluster()
        unregister(self.config.node_name, self.config.data_dir, self.environ)
        await self._control.close()
        return is_written and not self.has_failed

    # --- the cluster around the broker ---

    @property
    def is_clusterable(self) -> bool:
        """True if the node has a peer listener: by its configuration, or as its data directory belongs to a cluster."""
        options = self.config.cluster
        return (
            self.is_witness
            or options.listen is not None
            or bool(options.formation_nodes)
            or options.formation_dns_hostname is not None
            or options.formation_plugin is not None
            or os.path.isdir(os.path.join(self.config.data_dir, directory.RAFT))
        )

    async def open_cluster(self) -> "Cluster":
        """Open the peer listener and read the metadata. Raises: OSError, ConfigError."""
        from node.clustering.cluster import Cluster

        assert self.cluster is None
        self.cluster = cluster = Cluster.on_disk(self)
        try:
            await cluster.open()
        except BaseException:
            self.cluster = None
            raise
        return cluster

    async def close_cluster(self) -> None:
        """Close the links and the metadata. The caller has stopped the broker."""
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            await cluster.close()

    async def _begin(self) -> Node | None:
        self.telemetry = self._make_telemetry()
        try:
            if self.cluster is not None:
                node = await self.cluster.brokers.begin()
            else:
                node = self.make_node(None)
                await node.start()
        finally:
            self.wait_is("")
        if node is None:
            return None
        self.management.attach(node)
        if self.telemetry is not None:
            self.telemetry.start(node)
        return node

    def make_node(self, cluster: ClusterSide | None) -> Node:
        """Return a broker that is not started."""
        return Node(
            self.config,
            logger=self.logger,
            cluster=cluster,
            mirroring_events=self.management.events,
            observer=None if self.telemetry is None else self.telemetry.observer,
            on_failed=self.ask_to_stop,
            on_held=self.lag.held,
            claims=None if cluster is None else ClientClaims(self.management.questions).ask,
        )

    def _make_telemetry(self) -> "Telemetry | None":
        if not self.config.telemetry.is_on:
            return None
        from node.process.telemetry import AgentSurroundings
        from node.telemetry.telemetry import Telemetry

        return Telemetry(self.config, AgentSurroundings(self), self.logger, self.lag)

    async def _end(self, node: Node) -> bool:
        self.management.detach()
        try:
            if self.telemetry is not None:
                await self.telemetry.sample()
            return await (node.stop() if self.cluster is None else self.cluster.brokers.end(node))
        finally:
            telemetry, self.telemetry = self.telemetry, None
            if telemetry is not None:
                await telemetry.stop("paused" if self.is_paused else None)

    async def _start_app(self) -> bool:
        """Start the broker, or a witness's votes. Returns False if the process is to end before that."""
        stopped = asyncio.ensure_future(self.stopping.wait())
        stopped.add_done_callback(self._stop_waiting)
        try:
            if self.is_witness and self.cluster is not None:
                await self.cluster.brokers.attend()
                self._is_opening = False
            else:
                self._is_opening = False
                await self.broker_supervisor.start()
        except GivenUp:
            return False
        finally:
            stopped.cancel()
        return True

    def _stop_waiting(self, stopped: "asyncio.Future[Any]") -> None:
        if not stopped.cancelled():
            self.broker_supervisor.is_giving_up.set()

    def _register(self) -> None:
        try:
            register(self.config.node_name, self.config.data_dir, self.environ)
        except OSError as error:
            self.logger.warning(
                "The node is not listed for `fluffle ctl`, which needs --data then: %s", error
            )
