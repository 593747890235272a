"""What a node tells the others: at once when it is new, never twice."""

import asyncio
from typing import Any

from node.clustering import publisher
from node.clustering.publisher import Publisher, WatchedCounts


class Fake:
    """Has a status, and remembers when it was told."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []

    def own_status(self) -> dict[str, Any]:
        return dict(self.status)


def test_a_connection_is_told_in_the_same_turn_and_many_together() -> None:
    """amqp-behaviour §9.7: limits count the connections of all nodes."""
    fake = Fake()

    async def main() -> None:
        told = Publisher(fake.own_status, fake.told.append, 1.0)
        counts = WatchedCounts(told.soon)
        for number in range(3):
            counts["/", None] += 1
            counts[None, "guest"] += 1
            fake.status = {"connections": number + 1}
        await asyncio.sleep(0)
        assert fake.told == [{"connections": 3}]
        told.soon()
        fake.status = {"connections": 4}
        await asyncio.sleep(0)
        assert len(fake.told) == 1  # not so often
        await asyncio.sleep(4 * publisher.PAUSE_S)
        assert fake.told[1:] == [{"connections": 4}]
        told.publish()
        assert len(fake.told) == 2
        told.close()
        told.soon()

    asyncio.run(main())
