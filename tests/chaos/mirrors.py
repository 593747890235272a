"""Policies say how many copies the queues of the load are to have, and it is checked whether it is so."""

import asyncio
import time
from typing import Any, Final

from tests.chaos.broker import (
    BrokerCluster,
    BrokerNode,
    Definition,
    NodeFailed,
    Operator,
    OperatorError,
    Ring,
)
from tests.chaos.mirror_load import DURABLE, TRANSIENT_QUEUE
from tests.kit.patience import patience

SYNCED_S: Final = 60.0
"""All mirrors must have all messages this long after a fault has ended (reliability §5.3)."""
WANTED: Final = {name: 2 if name == "two" else 3 for name in (*DURABLE, TRANSIENT_QUEUE)}
"""A queue is to have so many copies."""
AUTOMATIC: Final = {"ha-sync-mode": "automatic"}
ALL: Final = {"ha-mode": "all", **AUTOMATIC}
ALL_BUT: Final = "^(hot|held|deep|single|ranked|lazy|slow|idle|brief)$"
POLICIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "all": (ALL_BUT, ALL),
    "two": ("^two$", {"ha-mode": "exactly", "ha-params": 2, **AUTOMATIC}),
    "three": ("^three$", {"ha-mode": "exactly", "ha-params": 3, **AUTOMATIC}),
}


class Mirrors:
    """The operator's view of the mirrored queues.

    extra: what each policy that has ha-mode has besides: ha-promote-on-failure, …
    """

    def __init__(self, cluster: BrokerCluster, operator: Operator, extra: Definition | None = None) -> None:
        self._cluster = cluster
        self._operator = operator
        self._extra = dict(extra or {})

    async def set_policies(self) -> None:
        """Set the policies of quiet times. Raises: OperatorError."""
        for name, (pattern, definition) in POLICIES.items():
            await self._operator.set_policy(name, pattern, {**definition, **self._extra})

    async def change(self, definition: Definition) -> None:
        """Another policy for the queues that are to have copies everywhere. Raises: OperatorError."""
        extra = self._extra if "ha-mode" in definition else {}
        await self._operator.set_policy("all", ALL_BUT, {**definition, **extra})

    async def node_of(self, queue: str, *, is_mirror: bool = False) -> BrokerNode | None:
        """Return the node of the queue's master or first mirror; None: nobody knows."""
        if not is_mirror:
            return await self._operator.queue_master(queue)
        ring = (await self.rings()).get(queue)
        names = ring.mirrors if ring is not None else ()
        return next((node for node in self._cluster.nodes if node.name in names), None)

    async def rings(self) -> dict[str, Ring]:
        """As the operator says, nothing if nobody answers."""
        try:
            return await self._operator.rings()
        except OperatorError:
            return {}

    async def unsynchronised(self) -> list[str]:
        """Return what is not as it should be, in words."""
        try:
            rings = await self._operator.rings()
        except OperatorError as error:
            return [str(error)]
        found = []
        for queue, wanted in WANTED.items():
            ring = rings.get(queue)
            if ring is None:
                if queue != TRANSIENT_QUEUE:
                    found.append(f"{queue} has no ring")
            elif not ring.is_live or len(ring.synchronised) + 1 != wanted or ring.joining:
                found.append(f"{queue}: {ring}")
        return found

    async def await_synchronised(self, limit_s: float = SYNCED_S) -> None:
        """Wait until each queue has all its copies. Raises: NodeFailed."""
        deadline = time.monotonic() + limit_s * patience()
        while found := await self.unsynchronised():
            if time.monotonic() > deadline:
                raise NodeFailed(f"not synchronised {limit_s:.0f} s after the fault: " + "; ".join(found))
            await asyncio.sleep(0.1)
