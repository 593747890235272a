"""The metrics of a channel with each exchange and each queue, with RabbitMQ's labels.

Channels count these pairs only while somebody asks (`node.client.pairs`), so that the first scrape has none. The sums
of all channels are in `prometheus`, under the same names. Pure. Source: a live RabbitMQ 3.10.8.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from node.broker.broker import Broker
from node.client.channel import Channel
from node.client.counters import ExchangePair, QueuePair
from node.management import metric_families as families
from node.management.exposition import Exposition, labelled
from node.statistics.channels import channel_name


class PairMetrics:
    """Gathers the rows of those families that are wanted."""

    def __init__(self, out: Exposition, prefix: str, wants: Callable[[str], bool], broker: Broker) -> None:
        self._broker = broker
        self._out = out
        self._prefix = prefix
        self._exchanges = self._columns("channel_exchange_metrics", families.CHANNEL_EXCHANGE, wants)
        self._queues = self._columns("channel_queue_metrics", families.CHANNEL_QUEUE, wants)
        self._routed: list[str] | None = None
        [published] = families.QUEUE_PUBLISHED
        self._routed_name = prefix + published.metric.name
        if wants("channel_queue_exchange_metrics"):
            self._routed = out.begin(published.metric, prefix)
        broker.pairs.ask(broker.now)

    def _columns(
        self, family: str, metrics: Sequence[families.OfChannel], wants: Callable[[str], bool]
    ) -> "list[_Column]":
        if not wants(family):
            return []
        return [_Column(each, self._out, self._prefix) for each in metrics]

    def note(self, channel: Channel) -> Iterator[None]:
        """Add the rows of a channel, and have it count its pairs from now on; yields after each pair."""
        pairs = self._broker.pairs.begin(channel)
        pairs.prune(self._broker.catalogue, channel.connection.vhost)
        name, vhost = channel_name(channel), channel.connection.vhost
        for exchange, of_exchange in list(pairs.exchanges.items()) if self._exchanges else ():
            labels = labelled({"channel": name, "vhost": vhost, "exchange": exchange})
            for column in self._exchanges:
                column.add(labels, of_exchange)
            yield
        for queue, of_queue in list(pairs.queues.items()) if self._queues else ():
            labels = labelled({"channel": name, "vhost": vhost, "queue": queue})
            for column in self._queues:
                column.add(labels, of_queue)
            yield
        if self._routed is None:
            return
        for (queue, exchange), count in list(pairs.routed.items()):
            of = {"channel": name, "queue_vhost": vhost, "queue": queue}
            labels = labelled({**of, "exchange_vhost": vhost, "exchange": exchange})
            self._routed.append(f"{self._routed_name}{labels} {count}")
            yield


class _Column:
    """One metric of such a family."""

    def __init__(self, of: families.OfChannel, out: Exposition, prefix: str) -> None:
        self._name = prefix + of.metric.name
        self._lines = out.begin(of.metric, prefix)
        self._value = attrgetter(of.counter)

    def add(self, labels: str, pair: ExchangePair | QueuePair) -> None:
        """One row."""
        self._lines.append(f"{self._name}{labels} {self._value(pair)}")
