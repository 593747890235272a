"""An operator asks Fluffle's nodes over the socket that `fluffle ctl` uses."""

import asyncio
import json
from typing import Any, Final

from node.io.control import ControlError
from tests.chaos.broker import VHOST, BrokerNode, Definition, OperatorError, Ring
from tests.chaos.cluster import ChaosCluster, ChaosNode

ASK_S: Final = 20.0
REBALANCE_S: Final = 60.0
WAITING: Final = ("messages_delayed", "messages_dlx")
"""Columns of `list_queues`."""


class FluffleOperator:
    """Asks any node that answers, as one is as good as any other."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster

    async def set_policy(self, name: str, pattern: str, definition: Definition) -> None:
        """Raises: OperatorError."""
        text = json.dumps(dict(definition))
        await self._ask(
            "set_policy",
            vhost=VHOST,
            name=name,
            pattern=pattern,
            apply_to="queues",
            definition=text,
            priority=0,
        )

    async def rings(self, node: BrokerNode | None = None) -> dict[str, Ring]:
        """Raises: OperatorError."""
        found = await self._ask("list_rings", node, vhost=VHOST)
        return {row["name"]: _ring(row) for row in found["rings"]}

    async def queue_master(self, queue: str) -> BrokerNode | None:
        """None: nobody knows."""
        try:
            ring = (await self.rings()).get(queue)
        except OperatorError:
            return None
        return next(
            (node for node in self._cluster.nodes if ring is not None and node.name == ring.master), None
        )

    async def depths(self, node: BrokerNode | None = None) -> dict[str, int]:
        """Raises: OperatorError."""
        rows = (await self._ask("list_queues", node, vhost=VHOST))["queues"]
        return {row["name"]: row["messages"] for row in rows}

    async def waiting(self) -> dict[str, int]:
        """Return how many messages each queue has, with those that wait to be retried or to leave as dead letters.

        Raises: OperatorError.
        """
        rows = (await self._ask("list_queues", vhost=VHOST, columns=list(WAITING)))["queues"]
        return {row["name"]: row["messages"] + sum(row[name] or 0 for name in WAITING) for row in rows}

    async def synchronise(self, queue: str) -> None:
        """Returns when the mirrors are full. Raises: OperatorError, also when it was cancelled."""
        await self._ask("sync_queue", vhost=VHOST, queue=queue)

    async def cancel_synchronisation(self, queue: str) -> None:
        """Raises: OperatorError."""
        await self._ask("cancel_sync_queue", vhost=VHOST, queue=queue)

    async def rebalance(self) -> None:
        """Raises: OperatorError."""
        await self._ask(
            "rebalance", timeout_s=REBALANCE_S, type="all", vhost_pattern=".*", queue_pattern=".*"
        )

    async def set_memory_watermark(self, node: BrokerNode, fraction: float | None) -> None:
        """Raises: OperatorError."""
        how: dict[str, Any] = {} if fraction is None else {"relative": fraction}
        await self._ask("set_vm_memory_high_watermark", node, **how)

    async def enable_plugin(self, plugin: str) -> None:
        """Enable a plug-in on all nodes. Raises: OperatorError."""
        await self._ask("enable_plugin", plugin=plugin)

    async def _ask(
        self, operation: str, node: BrokerNode | None = None, timeout_s: float = ASK_S, **arguments: object
    ) -> Any:
        """Ask this node, or each in turn until one has an answer. Raises: OperatorError."""
        failed: Exception = OperatorError("no node runs")
        for each in self._cluster.nodes if node is None else (node,):
            assert isinstance(each, ChaosNode)
            if each.is_running:
                try:
                    return await each.ask(operation, timeout_s=timeout_s, **arguments)
                except (ControlError, OSError) as error:
                    failed = error
                    # It may just be starting, and a loop of questions is not to starve it.
                    await asyncio.sleep(0)
        raise OperatorError(f"{operation}: {failed}")


def _ring(row: dict[str, Any]) -> Ring:
    return Ring(
        row["master"] or "",
        tuple(row["mirrors"]),
        tuple(row["synchronised"]),
        tuple(row["joining"]),
        is_live=row["state"] == "live",
        version=json.dumps([row[name] for name in ("version", "ring", "state")]),
    )
