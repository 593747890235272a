"""A broker without sockets, and its statistics."""

from typing import Any

from node.broker.broker import Broker
from node.statistics.query import Query
from node.statistics.rows import Kind, Row
from node.statistics.statistics import Statistics, StatisticsOptions
from tests.kit.world import START, World

TIME_MS = 1_700_000_000_000
"""The time of day at the start of every test, a multiple of every step."""

INTERVAL_S = 5


class Watched:
    """A world whose time advances from tick to tick."""

    def __init__(self, options: StatisticsOptions | None = None) -> None:
        self.world = World()
        self.statistics = Statistics(self.world.broker, options or StatisticsOptions())

    @property
    def broker(self) -> Broker:
        return self.world.broker

    @property
    def time_ms(self) -> int:
        return TIME_MS + round((self.world.now - START) * 1000)

    def tick(self, count: int = 1) -> None:
        """Advance the time by an interval and take a sample, this many times."""
        for _ in range(count):
            self.world.advance(INTERVAL_S)
            for _ in self.statistics.sample(self.world.now, self.time_ms):
                pass

    def rows(self, kind: Kind, query: Query | None = None) -> list[Row]:
        return list(self.statistics.rows(kind, query or Query()))

    def row(self, kind: Kind, name: str, query: Query | None = None) -> dict[str, Any]:
        """Return the row with this name."""
        [row] = [row for row in self.rows(kind, query) if row["name"] == name]
        return row

    def queue(self, name: str, query: Query | None = None) -> dict[str, Any]:
        """Return the row of a queue in `/`."""
        uid = self.world.queue(name).record.uid
        [row] = [row for row in self.rows("queues", query) if row["id"] == uid]
        return row
