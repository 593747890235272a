"""The loads of protocols that plug-ins bring: their clients go from node to node without the balancer.

    PluginLoad: knows the nodes, and which of them something is done to     RoamingClient: is at one of them for a while

`tests.chaos.mqtt_load` and `tests.chaos.stomp_load` say what clients do while they are connected.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from node.io.control import ControlError
from tests.chaos.broker import Operator
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.chaos.crew import Crew
from tests.chaos.mirror_load import LATE_S, NODES, OUTCOME_S, Load
from tests.kit.patience import patience

SESSION_S: Final = (5.0, 40.0)
"""A connection lasts so long, then the client goes on at another node."""
TICK_S: Final = 0.1


class Connection(Protocol):
    """A client's connection.   lost: why it has ended; None while it has not."""

    @property
    def lost(self) -> Exception | None: ...

    def abort(self) -> None:
        """Close it without a word."""


C = TypeVar("C", bound=Connection)


class Joined(NamedTuple, Generic[C]):
    """A connection to a node.   node: its index."""

    connection: C
    node: int


class PluginLoad(Crew):
    """All clients of a protocol.   load: knows the nodes, and which of them something is done to."""

    def __init__(self, load: Load, operator: Operator, random: Random) -> None:
        super().__init__()
        assert isinstance(load.cluster, ChaosCluster), "the ports are those of our nodes"
        self.load = load
        self._cluster = load.cluster
        self._operator = operator
        self._random = random

    async def _enable(self, plugin: str) -> None:
        """Raises: TimeoutError."""
        async with asyncio.timeout(OUTCOME_S * patience()):
            while True:
                try:
                    await self._cluster.nodes[0].ask("enable_plugin", plugin=plugin)
                    return
                except (ControlError, OSError):
                    await asyncio.sleep(TICK_S)

    async def _end_all(self, is_complete: Callable[[], bool]) -> None:
        """End publishers, wait until all has come, or for as long as one may be waited for, and end the others."""
        count = self.load.ledger.count
        self.is_stopping = True
        await self._join(self._producing, OUTCOME_S, lambda text: count.problem("stuck", text))
        deadline = time.monotonic() + OUTCOME_S * patience()
        while time.monotonic() < deadline and not is_complete():
            await asyncio.sleep(TICK_S)
        self.are_consumers_stopping = True
        await self._join(self._consuming, OUTCOME_S, lambda text: count.problem("stuck", text))

    def _new_random(self) -> Random:
        return Random(self._random.random())

    async def join_any(
        self, connect: Callable[[ChaosNode], Awaitable[C]], lost: type[Exception]
    ) -> Joined[C] | None:
        """Connect to any node, to one that something is done to only if no other accepts.

        connect: to a node; raises `lost` or TimeoutError.   Returns: None if no node accepts, after a short wait.
        """
        nodes = list(NODES)
        self._random.shuffle(nodes)
        nodes.sort(key=lambda each: each in self.load.victims)
        for node in nodes:
            with contextlib.suppress(lost, TimeoutError):
                return Joined(await connect(self._cluster.nodes[node]), node)
        await asyncio.sleep(self._random.uniform(0.1, 0.3))
        return None


class RoamingClient(ABC, Generic[C]):
    """A client that goes from node to node.   node: the one that it is connected to."""

    node = -1

    def __init__(self, random: Random) -> None:
        self._random = random

    @abstractmethod
    async def _say_goodbye(self, connection: C) -> None:
        """Close a connection as the protocol wants it. Raises: what its loss raises, if it is lost."""

    async def _leave(self, connection: C, lost: type[Exception]) -> None:
        """End a connection: half of them in peace, and the others without a word.   lost: see `_say_goodbye`."""
        if connection.lost is None and self._random.random() < 0.5:
            with contextlib.suppress(lost, TimeoutError):
                async with asyncio.timeout(LATE_S):
                    await self._say_goodbye(connection)
        connection.abort()

    def _session_end(self) -> float:
        """Return when a connection that begins now is to end, monotonic."""
        return time.monotonic() + self._random.uniform(*SESSION_S)
