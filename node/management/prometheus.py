"""The metrics of one node as Prometheus scrapes them: sums, rows for each object, or chosen families.

    /metrics               sums over the queues, channels and connections of this node
    /metrics/per-object    the same names with a row for each of them
    /metrics/detailed      chosen families, each row with its labels, under other names

A scrape works in slices of a few ms, so that the node serves AMQP meanwhile. Values are of the time of the
scrape, not of the last sample. Source: management §5.
"""

import gc
import platform
import re
import resource
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from node.app import Node
from node.client.channel import Channel
from node.client.counters import AT_LEAST_ONCE, AT_MOST_ONCE, DISABLED, ChannelCounters
from node.client.vhost import routed
from node.io.turns import Turns
from node.management import metric_families as families
from node.management.exposition import CONTENT_TYPE, Exposition, Metric, Type, labelled
from node.management.link_metrics import LinkMetrics
from node.management.node_facts import disk_counters, node_facts
from node.management.pair_metrics import PairMetrics
from node.management.site import Site
from node.queue.queue import Queue
from node.statistics.channels import channel_name, open_channels
from node.statistics.connections import is_shown
from node.statistics.query import Query
from node.version import COMPATIBLE_VERSION, VERSION

PREFIX: Final = "rabbitmq_"
DETAILED: Final = "rabbitmq_detailed_"
CLUSTER: Final = "rabbitmq_cluster_"
GLOBAL: Final = "rabbitmq_global_"
OWN: Final = "fluffle_"

FOLD_EVERY: Final = 256
"""The objects after which the lines of a page are folded, which takes some 0.2 ms."""

PROTOCOL: Final = "amqp091"
QUEUE_TYPES: Final = ("rabbit_classic_queue", "rabbit_quorum_queue", "rabbit_stream_queue")
_COUNTED_TYPE: Final = QUEUE_TYPES[0]
"""The type that all queues count as: a quorum queue is a mirrored classic one here."""

_BY_PROTOCOL: Final = (
    ("messages_confirmed_total", "Messages confirmed to publishers", "confirm"),
    ("messages_received_confirm_total", "Messages published on channels in confirm mode", "received_confirm"),
    ("messages_received_total", "Messages published", "publish"),
    (
        "messages_unroutable_dropped_total",
        "Messages dropped: they reached no queue",
        "drop_unroutable",
    ),
    (
        "messages_unroutable_returned_total",
        "Messages returned to the publisher: they reached no queue",
        "return_unroutable",
    ),
)
_BY_QUEUE_TYPE: Final = (
    ("messages_acknowledged_total", "Messages acknowledged", ("ack",)),
    (
        "messages_delivered_consume_auto_ack_total",
        "Messages delivered to consumers without acknowledgement",
        ("deliver_no_ack",),
    ),
    (
        "messages_delivered_consume_manual_ack_total",
        "Messages delivered to consumers, to be acknowledged",
        ("deliver",),
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "Messages returned by basic.get without acknowledgement",
        ("get_no_ack",),
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "Messages returned by basic.get, to be acknowledged",
        ("get",),
    ),
    (
        "messages_delivered_total",
        "Messages delivered to consumers or returned by basic.get",
        ("deliver", "deliver_no_ack", "get", "get_no_ack"),
    ),
    ("messages_get_empty_total", "Calls of basic.get that found a queue empty", ("get_empty",)),
    ("messages_redelivered_total", "Messages delivered again", ("redeliver",)),
)

_CLASSIC: Final = ((_COUNTED_TYPE, AT_MOST_ONCE), (_COUNTED_TYPE, DISABLED))
_QUORUM: Final = tuple((QUEUE_TYPES[1], strategy) for strategy in (AT_LEAST_ONCE, AT_MOST_ONCE, DISABLED))
_DEAD_LETTERED: Final = (
    ("confirmed", "Dead letters confirmed by their queues", ((QUEUE_TYPES[1], AT_LEAST_ONCE),)),
    ("delivery_limit", "Messages that exceeded the delivery limit of their queue", (*_CLASSIC, *_QUORUM)),
    ("expired", "Messages that expired", (*_CLASSIC, *_QUORUM)),
    ("maxlen", "Messages that exceeded the length limit of their queue", (*_CLASSIC, *_QUORUM)),
    ("rejected", "Messages rejected by clients", (*_CLASSIC, *_QUORUM)),
    ("retried", "Dead letters tried again", ((QUEUE_TYPES[1], AT_LEAST_ONCE),)),
)

ALARMS: Final = (
    ("memory", "alarms_memory_used_watermark", "1 while the memory alarm is on"),
    ("disk", "alarms_free_disk_space_watermark", "1 while the disk alarm is on"),
    ("file_descriptor_limit", "alarms_file_descriptor_limit", "Always 0"),
)

CLUSTER_FAMILIES: Final = ("vhost_status", "exchange_bindings", "exchange_names")
MIRROR_FAMILY: Final = "mirror_metrics"
"""Our own family of `/metrics/detailed`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a scrape.   registry: its name in telemetry.

    families: None for all.   vhosts: whose queues, channels and connections; None for all.
    """

    registry: str
    is_per_object: bool
    families: frozenset[str] | None = None
    vhosts: frozenset[str] | None = None

    def wants(self, family: str) -> bool:
        """Return True if a family is asked for."""
        if family in families.ONLY_PER_OBJECT and not self.is_per_object:
            return False
        return self.families is None or family in self.families

    def sees(self, vhost: str) -> bool:
        """True if the scrape has objects of this vhost."""
        return self.vhosts is None or vhost in self.vhosts


class Telemetry:
    """The durations and sizes of scrapes, as RabbitMQ shows its own."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def note(self, registry: str, size: int, seconds: float) -> None:
        """Count a scrape that is over."""
        self._count[registry] += 1
        self._bytes[registry] += size
        self._seconds[registry] = self._seconds.get(registry, 0.0) + seconds

    def write(self, out: Exposition) -> None:
        """Write two summaries of all scrapes before."""
        duration = Metric("scrape_duration_seconds", "summary", "Durations of scrapes in seconds")
        size = Metric("scrape_size_bytes", "summary", "Sizes of scrapes in bytes")
        for metric, sums in ((duration, self._seconds), (size, self._bytes)):
            lines = out.begin(metric, "telemetry_")
            for registry, count in self._count.items():
                labels = labelled({"registry": registry, "content_type": CONTENT_TYPE})
                lines.append(f"telemetry_{metric.name}_count{labels} {count}")
                lines.append(f"telemetry_{metric.name}_sum{labels} {sums.get(registry, 0)}")


class Scrape:
    """One scrape of a node whose broker runs. `await pieces()`."""

    def __init__(self, site: Site, node: Node, wanted: Wanted) -> None:
        self._site = site
        self._node = node
        self._broker = node.broker
        self._wanted = wanted
        self._prefix = PREFIX if wanted.families is None else DETAILED
        self._out = Exposition()
        self._turns = Turns()
        self._is_labelled = wanted.is_per_object
        self._consumers = self._publishers = self._channel_count = 0
        self._totals = ChannelCounters()

    async def pieces(self, telemetry: Telemetry) -> list[bytes]:
        """Make the page, in pieces."""
        is_whole = self._wanted.families is None
        self._add_node()
        await self._add_clients()
        await self._add_queues()
        await self._add_exchanges()
        await LinkMetrics(self._out, self._prefix, self._turns, self._wanted).add(self._node.services)
        if is_whole:
            self._add_totals()
            self._add_store()
            self._add_global()
            self._add_process()
        else:
            await self._add_cluster()
        self._add_identity()
        telemetry.write(self._out)
        pieces = []
        for piece in self._out.pieces():
            pieces.append(piece)
            await self._turns.give()
        return pieces

    # --- the node ---

    def _add_node(self) -> None:
        wanted, broker = self._wanted, self._broker
        if wanted.families is None and not self._is_labelled:
            short_of = broker.alarms.short_of_here()
            for name, shown, text in ALARMS:
                self._out.add(Metric(shown, "untyped", text), PREFIX, int(name in short_of))
        if any(map(wanted.wants, families.NODE_FAMILIES)):
            facts = node_facts(self._node, self._site.status(), self._site.statistics, Query())
            facts.update(asdict(disk_counters(self._node)), io_seek_time=0)
            for family, metrics in families.NODE_FAMILIES.items():
                for each in metrics if wanted.wants(family) else ():
                    value = facts[each.field]
                    self._add(each.metric, value * each.scale if each.scale != 1 else value)
        if wanted.wants("ra_metrics"):
            for metric in families.RAFT:
                self._add(metric, 0)
        if wanted.wants("auth_attempt_metrics"):
            for metric, field in families.AUTH:
                self._out.begin(metric, self._prefix)
                for protocol, counters in broker.counters.auth_attempts.items():
                    self._add(metric, getattr(counters, field), labelled({"protocol": protocol}))
        if self._is_labelled and wanted.wants("auth_attempt_detailed_metrics"):
            for metric in families.AUTH_DETAILED:
                self._out.begin(metric, self._prefix)

    def _add(self, metric: Metric, value: float, labels: str = "") -> None:
        self._out.add(metric, self._prefix, value, labels)

    # --- channels and connections ---

    async def _add_clients(self) -> None:
        """Add the metrics of clients, and sum up all channels, past and present, for the global ones."""
        wanted = self._wanted
        of_pairs = families.PAIR_FAMILIES if self._is_labelled else frozenset()
        of_channel = _chosen(families.CHANNEL_FAMILIES, wanted, of_pairs)
        of_connection = _chosen(families.CONNECTION_FAMILIES, wanted)
        pairs = None
        if any(map(wanted.wants, of_pairs)):
            pairs = PairMetrics(self._out, self._prefix, wanted.wants, self._broker)
        if not of_channel and not of_connection and pairs is None:
            return
        channels = _Columns([each.metric for each in of_channel], self)
        connections = _Columns([each.metric for each in of_connection], self)
        self._totals.add(self._broker.counters.ended)
        for connection in list(self._broker.connections.values()):
            if wanted.sees(connection.vhost):
                if is_shown(connection):
                    labels = labelled({"channel": connection.name}) if self._is_labelled else ""
                    connections.note([each.value(connection) for each in of_connection], labels)
                for channel in list(connection.channels.values()):
                    self._count(channel)
                    await self._turns.give()
                for channel in open_channels(connection) if is_shown(connection) else ():
                    channels.note([each.value(channel) for each in of_channel], self._labels_of(channel))
                    for _ in pairs.note(channel) if pairs is not None else ():
                        await self._turns.give()
                    await self._turns.give()
            await self._turns.give()
        channels.write()
        connections.write()

    def _count(self, channel: Channel) -> None:
        counters = channel.counters
        self._totals.add(counters)
        self._channel_count += 1
        self._consumers += len(channel.consumers)
        self._publishers += counters.publish > 0

    def _labels_of(self, channel: Channel) -> str:
        return labelled({"channel": channel_name(channel)}) if self._is_labelled else ""

    # --- queues ---

    async def _add_queues(self) -> None:
        wanted = self._wanted
        of_pairs = families.PAIR_FAMILIES if self._is_labelled else frozenset()
        of_queue = list(
            dict.fromkeys(_chosen(families.QUEUE_FAMILIES, wanted, of_pairs))
        )  # consumers are in two families
        summed = [each.is_summed for each in of_queue]
        queues = _Columns([each.metric for each in of_queue], self, summed)
        has_mirrors = wanted.wants(MIRROR_FAMILY)
        mirrors = _Mirrors(self._out, is_labelled=self._is_labelled)
        if of_queue or has_mirrors:
            fields = {each.field for each in of_queue if each.field} | ({"mirrors"} if has_mirrors else set())
            by_uid = {queue.record.uid: queue for queue in self._broker.local_queues}
            left_out = self._left_out()
            for row in self._site.statistics.rows("queues", Query(fields=frozenset(fields))):
                queue = by_uid.get(str(row["id"]))
                if queue is not None and wanted.sees(queue.record.vhost):
                    labels = ""
                    if self._is_labelled:
                        labels = labelled({"vhost": queue.record.vhost, "queue": queue.record.name})
                    if left_out is None or left_out.search(queue.record.name) is None:
                        queues.note(
                            [_value(each, row, queue, self._is_labelled) for each in of_queue], labels
                        )
                    if has_mirrors:
                        mirrors.note(queue, row)
                await self._turns.give()
        queues.write()
        if has_mirrors:
            mirrors.write()
            await self._add_mirroring()

    async def _add_exchanges(self) -> None:
        """Add how much this node's clients published to each exchange."""
        metric, wanted = families.EXCHANGE_PUBLISHED, self._wanted
        if not wanted.wants(families.EXCHANGE_FAMILY):
            return
        lines, name = self._out.begin(metric, self._prefix), self._prefix + metric.name
        for vhost in [each for each in self._broker.vhosts.values() if wanted.sees(each.name)]:
            for exchange, counters in list(vhost.exchange_counters.items()):
                labels = labelled({"vhost": vhost.name, "exchange": exchange})
                lines.append(f"{name}{labels} {counters.publish_in}")
                await self._turns.give()

    def _left_out(self) -> "re.Pattern[str] | None":
        pattern = self._site.config.prometheus.filter_aggregated_queue_metrics_pattern
        return None if pattern is None or self._is_labelled else re.compile(pattern)

    async def _add_mirroring(self) -> None:
        """Add the metrics of mirroring that do not belong to a single queue."""
        catalogue, out = self._broker.catalogue, self._out
        stopped = 0
        for vhost in catalogue.vhosts():
            for record in list(catalogue.queues(vhost.name)):
                stopped += record.view is not None and record.view.master_node is None
                await self._turns.give()
        out.add(families.QUEUES_WITHOUT_MASTER, OWN, stopped)
        events = self._node.mirroring_events
        out.add(families.MASTER_CHANGES, OWN, events.master_changes)
        lines = out.begin(families.MIRRORING_EVENTS, OWN)
        for kind, count in sorted(events.counts.items()):
            lines.append(f"{OWN}{families.MIRRORING_EVENTS.name}{labelled({'kind': kind})} {count}")
        own = self._node.config.node_name
        partitions = self._site.cluster_status().get("partitions", {})
        out.add(families.PARTITIONED_PEERS, OWN, len(partitions.get(own, ())))

    # --- the whole node ---

    def _add_totals(self) -> None:
        broker = self._broker
        connections = sum(map(is_shown, broker.connections.values()))
        queues = sum(1 for _ in broker.local_queues)
        for name, text, value in (
            ("connections", "Connections that are open", connections),
            ("channels", "Channels that are open", self._channel_count),
            ("consumers", "Consumers of this node's clients", self._consumers),
            ("queues", "Queues of this node", queues),
        ):
            self._out.add(Metric(name, "gauge", text), PREFIX, value)

    def _add_store(self) -> None:
        """Add the metrics of messages that were lost on disk or dropped as duplicates, and of plug-ins."""
        out, storage = self._out, self._broker.storage
        scrubbing = storage.scrubbing
        out.add(families.UNREADABLE_MESSAGES, OWN, self._broker.counters.messages_unreadable)
        out.add(families.DUPLICATE_MESSAGES, OWN, self._broker.counters.messages_duplicate)
        if failures := self._broker.exchange_types.failures:
            lines = out.begin(families.PLUGIN_FAILURES, OWN)
            for plugin, count in sorted(failures.items()):
                lines.append(f"{OWN}{families.PLUGIN_FAILURES.name}{labelled({'plugin': plugin})} {count}")
        out.add(families.DAMAGED_FILES, OWN, len(storage.damaged_files()))
        out.add(families.SCRUBBED_BYTES, OWN, scrubbing.checked_bytes)
        out.add(families.SCRUB_ROUNDS, OWN, scrubbing.rounds)
        out.add(families.SCRUB_FINDINGS, OWN, scrubbing.findings)

    def _add_global(self) -> None:
        totals, out = self._totals, self._out
        protocol = labelled({"protocol": PROTOCOL})

        def add(name: str, type_: Type, text: str, value: int, labels: str = protocol) -> None:
            out.add(Metric(name, type_, text), GLOBAL, value, labels)

        add("consumers", "gauge", "Consumers of this node's clients", self._consumers)
        add("publishers", "gauge", "Open channels that have published", self._publishers)
        for name, text, field in _BY_PROTOCOL:
            add(name, "counter", text, getattr(totals, field))
        add(
            "messages_routed_total",
            "counter",
            "Messages routed to queues, counted once for each queue",
            routed(self._broker.counters.ended_exchanges, self._broker.vhosts.values()),
        )
        for name, text, names in _BY_QUEUE_TYPE:
            for queue_type in QUEUE_TYPES:
                value = sum(getattr(totals, each) for each in names) if queue_type == _COUNTED_TYPE else 0
                add(name, "counter", text, value, labelled({"protocol": PROTOCOL, "queue_type": queue_type}))
        counted = self._broker.counters.dead_lettered
        for reason, text, pairs in _DEAD_LETTERED:
            for queue_type, strategy in pairs:
                is_counted = queue_type == _COUNTED_TYPE or strategy == AT_LEAST_ONCE
                value = counted[reason, strategy] if is_counted else 0
                labels = labelled({"queue_type": queue_type, "dead_letter_strategy": strategy})
                add(f"messages_dead_lettered_{reason}_total", "counter", text, value, labels)

    def _add_process(self) -> None:
        """Add the metrics that Prometheus' own clients have for a process in Python."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        started = time.time() - float(self._site.status()["uptime"])
        out = self._out
        out.add(
            Metric("start_time_seconds", "gauge", "Time at which the node started, in seconds since 1970"),
            "process_",
            round(started),
        )
        seconds = usage.ru_utime + usage.ru_stime
        out.add(
            Metric("cpu_seconds_total", "counter", "CPU time of the process"), "process_", round(seconds, 3)
        )
        collections = Metric("gc_collections_total", "counter", "Runs of the garbage collector")
        for generation, stats in enumerate(gc.get_stats()):
            out.add(collections, "python_", stats["collections"], labelled({"generation": str(generation)}))
        info = {"implementation": platform.python_implementation(), "version": platform.python_version()}
        out.add(Metric("info", "gauge", "Python that runs the node"), "python_", 1, labelled(info))
        held_ms = self._site.status().get("loop_lag_longest_ms", 0.0)
        out.add(families.LOOP_HELD, OWN, round(held_ms / 1000, 6))
        build = labelled({"version": VERSION})
        out.add(Metric("build_info", "gauge", "Version of the broker"), OWN, 1, build)

    def _add_identity(self) -> None:
        config, catalogue = self._node.config, self._broker.catalogue
        status = self._site.status()
        build = {
            "rabbitmq_version": COMPATIBLE_VERSION,
            "prometheus_plugin_version": COMPATIBLE_VERSION,
            "prometheus_client_version": VERSION,
            "erlang_version": str(status["erlang_version"]),
        }
        identity = {
            "rabbitmq_node": config.node_name,
            "rabbitmq_cluster": str(catalogue.global_parameter("cluster_name") or config.cluster_name),
            "rabbitmq_cluster_permanent_id": str(catalogue.global_parameter("internal_cluster_id") or ""),
        }
        for name, text, labels in (
            ("build_info", "Versions", build),
            ("identity_info", "Node and cluster", identity),
        ):
            self._out.add(Metric(name, "untyped", text), PREFIX, 1, labelled(labels))

    async def _add_cluster(self) -> None:
        """Add the families that are equal on each node."""
        wanted, catalogue, out = self._wanted, self._broker.catalogue, self._out
        status = Metric("vhost_status", "gauge", "1 if the vhost runs here")
        bindings = Metric("exchange_bindings", "gauge", "Bindings from an exchange")
        names = Metric("exchange_name", "gauge", "Exchanges")
        for family, metric in zip(CLUSTER_FAMILIES, (status, bindings, names), strict=True):
            if wanted.wants(family):
                out.begin(metric, CLUSTER)
        for vhost in [each.name for each in catalogue.vhosts() if wanted.sees(each.name)]:
            if wanted.wants("vhost_status"):
                out.add(status, CLUSTER, int(vhost in self._broker.vhosts), labelled({"vhost": vhost}))
            if not (wanted.wants("exchange_bindings") or wanted.wants("exchange_names")):
                continue
            for exchange in [each for each in catalogue.exchanges(vhost) if each.name]:
                labels = labelled({"vhost": vhost, "exchange": exchange.name, "type": exchange.type})
                if wanted.wants("exchange_bindings"):
                    out.add(bindings, CLUSTER, len(catalogue.bindings_from(vhost, exchange.name)), labels)
                if wanted.wants("exchange_names"):
                    out.add(names, CLUSTER, 1, labels)
                await self._turns.give()

    # --- for _Columns ---

    @property
    def out(self) -> Exposition:
        """The exposition that rows are added to."""
        return self._out

    @property
    def prefix(self) -> str:
        """The prefix of the metrics of objects."""
        return self._prefix

    @property
    def is_labelled(self) -> bool:
        """True if each object has its row."""
        return self._is_labelled


class _Columns:
    """The metrics of one kind of objects: a row for each object, or their sums.   summed: where those make sense."""

    def __init__(self, metrics: Sequence[Metric], scrape: Scrape, summed: Sequence[bool] = ()) -> None:
        self._metrics = metrics
        self._scrape = scrape
        self._lines = [scrape.out.begin(metric, scrape.prefix) for metric in metrics]
        self._names = [scrape.prefix + metric.name for metric in metrics]
        self._sums: list[Any] = [0] * len(metrics)
        self._summed = summed or [True] * len(metrics)
        self._unfolded = 0

    def note(self, values: Sequence[float | None], labels: str) -> None:
        """Add an object's values.   None: it has no such value."""
        if self._scrape.is_labelled:
            for lines, name, value in zip(self._lines, self._names, values, strict=True):
                if value is not None:
                    lines.append(f"{name}{labels} {value}")
            self._unfolded += 1
            if self._unfolded == FOLD_EVERY:
                self._unfolded = 0
                self._scrape.out.fold()
            return
        for index, value in enumerate(values):
            if value is not None:
                self._sums[index] += value

    def write(self) -> None:
        """Write the sums, unless there is a row for each object."""
        if not self._scrape.is_labelled:
            for metric, value, is_summed in zip(self._metrics, self._sums, self._summed, strict=True):
                if is_summed:
                    self._scrape.out.add(metric, self._scrape.prefix, value)


class _Mirrors:
    """Metrics of mirrored queues whose master is here."""

    def __init__(self, out: Exposition, *, is_labelled: bool) -> None:
        self._out = out
        self._is_labelled = is_labelled
        self._queues = self._unsynchronised = 0
        self._sums: Counter[str] = Counter()

    def note(self, queue: Queue, row: families.RowOf) -> None:
        """Add a queue, mirrored or not.   row: its "mirrors" count."""
        view = queue.record.view
        if view is None:
            return
        mirrors = [member for member in view.ring if member.id != view.master]
        synchronised = sum(member.id in view.synced for member in mirrors)
        told = row.get("mirrors") or ()
        self._queues += 1
        self._unsynchronised += synchronised < len(mirrors)
        names = {"vhost": queue.record.vhost, "queue": queue.record.name}
        self._add(families.MIRRORS, len(mirrors), names)
        self._add(families.MIRRORS_SYNCHRONISED, synchronised, names)
        syncing = sum(bool(each.get("sync") and each["sync"].get("is_running")) for each in told)
        self._add(families.SYNC_IN_PROGRESS, syncing, names)
        for each in told:
            of_mirror = {**names, "mirror": each["node"]}
            self._add(families.MIRROR_BEHIND, each.get("behind") or 0, of_mirror)
            self._add(families.MIRROR_MISSING, each.get("lacks") or 0, of_mirror)

    def _add(self, metric: Metric, value: int, labels: dict[str, str]) -> None:
        if self._is_labelled:
            self._out.add(metric, OWN, value, labelled(labels))
        self._sums[metric.name] += value

    def write(self) -> None:
        """Write the sums."""
        self._out.add(families.MIRRORED_QUEUES, OWN, self._queues)
        self._out.add(families.UNSYNCHRONISED_QUEUES, OWN, self._unsynchronised)
        for metric in (
            families.MIRRORS,
            families.MIRRORS_SYNCHRONISED,
            families.MIRROR_BEHIND,
            families.MIRROR_MISSING,
            families.SYNC_IN_PROGRESS,
        ):
            self._out.begin(metric, OWN)
            if not self._is_labelled:
                self._out.add(metric, OWN, self._sums[metric.name])


def _chosen(known: Any, wanted: Wanted, left_out: Collection[str] = ()) -> list[Any]:
    chosen = [family for family in known if wanted.wants(family) and family not in left_out]
    return [each for family in chosen for each in known[family]]


def _value(each: families.OfQueue, row: families.RowOf, queue: Queue, is_labelled: bool) -> Any:
    if each.value is not None:
        return each.value(queue)
    value = row.get(each.field)
    if each.is_summed:
        return value if isinstance(value, int | float) else 0
    if not is_labelled:
        return None
    return value if isinstance(value, int | float) else "NaN"
