"""A node tells the others of news at once, and never twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from node.clustering import publisher
from node.clustering.publisher import Publisher, WatchedCounts


class Fake:
    """Has a status, and remembers when it was told."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []

    def own_status(self) -> dict[str, Any]:
        return dict(self.status)


def test_a_connection_is_told_in_the_same_turn_and_many_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """amqp-behaviour §9.7: limits count the connections of all nodes."""
    fake = Fake()

    async def main() -> None:
        monkeypatch.setattr(publisher, "boottime", lambda: 100.0)
        later: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: later.append(timer))
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
        [(pause_s, tell)] = later
        assert pause_s == pytest.approx(publisher.PAUSE_S)
        tell()
        assert fake.told[1:] == [{"connections": 4}]
        told.publish()
        assert len(fake.told) == 2
        told.close()
        told.soon()

    asyncio.run(main())
