"""The statistics of one node.

    counters of the broker ── tick, every interval_s ─► Sampler ─► Watches ─┐
    live objects ───────────────────────────────────────────────────────────┴─► rows, totals

Totals that a row shows are those of now; rates, and what is over time, are those of the last tick.
Source: management §1.0, §1.1.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from node.broker.broker import Broker
from node.statistics.channels import channel_rows
from node.statistics.connections import connection_rows
from node.statistics.consumers import consumer_rows
from node.statistics.exchanges import exchange_rows
from node.statistics.options import StatisticsOptions as StatisticsOptions
from node.statistics.query import Query, Range
from node.statistics.queues import QueueRows
from node.statistics.rows import Kind, Row
from node.statistics.sampler import Sampler
from node.statistics.series import IDLE, Watch
from node.statistics.totals import totals
from node.statistics.vhosts import vhost_rows
from node.statistics.watches import NODE, Watches

LINK_OCTETS: Final = ("send_bytes", "recv_bytes")


class Statistics:
    """The values over time of one broker, and the rows made of them.

    measure: returns figures of the node by name, the same names each time; called once a tick.
    links: returns `LINK_OCTETS` of the links to each other node, by its name; called once a tick.
    """

    def __init__(
        self,
        broker: Broker,
        options: StatisticsOptions,
        measure: Callable[[], Mapping[str, int]] | None = None,
        links: Callable[[], Mapping[str, tuple[int, ...]]] = dict,
    ) -> None:
        self.broker = broker
        self.options = options
        self.measure = measure
        self._links_now = links
        self._watches = Watches(broker, options)
        self._sampler = Sampler(self._watches)
        self._measured: Watch | None = None
        self._links = self._watches.watch(LINK_OCTETS)
        self._queues = QueueRows(self._watches)

    def sample(self, now: float, time_ms: int) -> Iterator[None]:
        """Take a sample of all objects; yields between slices of about a millisecond.

        A sample has to be taken to its end before the next begins.
        now: on the broker's clock.   time_ms: the time of day.
        """
        if not self.options.is_on:
            return
        yield from self._sampler.tick(time_ms)
        self._measure()
        self._note_links()

    def rows(self, kind: Kind, query: Query) -> Iterator[Row]:
        """Yield this node's rows of a kind one by one, for the caller to take in slices.

        Objects that go meanwhile are left out, those that come may be.
        """
        watches = self._watches
        match kind:
            case "queues":
                return self._queues.rows(query)
            case "connections":
                return connection_rows(watches, query)
            case "channels":
                return channel_rows(watches, query)
            case "consumers":
                return consumer_rows(watches, query)
            case "exchanges":
                return exchange_rows(watches, query)
            case "vhosts":
                return vhost_rows(watches, query)

    def totals(self, query: Query) -> dict[str, Any]:
        """Return this node's part of `/overview`: message_stats, churn_rates, queue_totals, object_totals.

        vhost: only its contents; without churn_rates.   user: only object_totals go by it.
        """
        return totals(self._watches, query)

    # --- figures of the node ---

    def _measure(self) -> None:
        if self.measure is None:
            return
        found = self.measure()
        if self._measured is None:
            self._measured = self._watches.watch(tuple(found))
        self._measured.note(NODE, self, tuple(found[name] for name in self._measured.names))

    def _note_links(self) -> None:
        for name, octets in self._links_now().items():
            self._links.note(name, self, octets)
        self._links.sweep()

    def link_details(self, name: str, what: str) -> dict[str, Any]:
        """Return `X_details` of one of `LINK_OCTETS` of the links to a node."""
        return self._links.details(self._links.get(name), self._links.columns[what], None)

    def node_details(self, name: str, range_: Range | None) -> dict[str, Any]:
        """Return `X_details` of one of the figures of `measure`; idle if there is none of that name."""
        watch = self._measured
        if watch is None or name not in watch.columns:
            return IDLE
        return watch.details(watch.get(NODE), watch.columns[name], range_)
