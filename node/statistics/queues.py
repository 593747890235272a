"""Queues that live on this node: the facts that only their master's node knows.

Some of RabbitMQ's numbers are counted a message at a time, and this broker does not keep them. They are estimated
here: persistent messages from the runs at the head, memory from the size of messages.
Source: management §1.3; a live RabbitMQ 3.10.8.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from node.broker.broker import Broker
from node.queue.content import decode_content
from node.queue.deduplicating_queue import DeduplicatingQueue
from node.queue.delay_backlog import DelayBacklog
from node.queue.mirroring import MirrorStatus
from node.queue.paged_backlog import MESSAGE_BYTES, PagedBacklog
from node.queue.queue import Queue
from node.queue.run import Run
from node.queue.status import QueueStatus
from node.statistics.connections import GARBAGE_COLLECTION, REDUCTIONS, host_and_port, put_machine
from node.statistics.consumers import consumers_of_queues
from node.statistics.message_stats import DELIVER_GET, message_stats, queue_values
from node.statistics.moment import moment
from node.statistics.query import Query
from node.statistics.rows import Part, Row, Selection
from node.statistics.watches import ALL_LENGTHS, Watches

QUEUE_BYTES: Final = 3 * 1024
"""The memory of a queue beside its messages, about."""

RUNS_LOOKED_AT: Final = 64
MESSAGES_LOOKED_AT: Final = 2_000
"""The messages at the head by which the share of persistent ones among all is estimated."""

_CLASSIC_ONLY: Final = "backing_queue_status"
_TIMESTAMP_FLAG: Final = 0x40
_FLAGS_AT: Final = 7 + 2 + 2 + 8
"""The place of the flags of the properties in a content header frame: behind its head, class, weight and body size."""


class QueueRows:
    """Finds the queues of one broker by their uid, and makes their rows."""

    def __init__(self, watches: Watches) -> None:
        self._broker = watches.broker
        self._watches = watches
        self._by_uid: dict[str, Queue] = {}
        self._version = -1

    def rows(self, query: Query) -> Iterator[Row]:
        """Yield one row for each queue.

        With `is_detailed` also for queues of other nodes that have consumers here: with these only.
        """
        selection = Selection(_PARTS, self._watches, query)
        wants_consumers = query.is_detailed and query.wants("consumer_details")
        if query.ids is not None:
            known = self._index
            queues = [known[uid] for uid in query.ids if uid in known]
            consumers = consumers_of_queues(self._broker, frozenset(query.ids)) if wants_consumers else {}
        else:
            queues = list(self._broker.local_queues)
            uids = frozenset(queue.record.uid for queue in queues) if wants_consumers else frozenset()
            consumers = consumers_of_queues(self._broker, uids) if wants_consumers else {}
        for queue in queues:
            uid = queue.record.uid
            mine = consumers.pop(uid, [])
            if queue.is_deleted or not query.is_in_scope(queue.record.vhost):
                continue
            row = selection.row(uid, queue)
            yield {**row, **_detailed(query, mine)} if query.is_detailed else row
        for uid, others in consumers.items():
            yield {"id": uid, **_detailed(query, others)}

    @property
    def _index(self) -> dict[str, Queue]:
        """The queues of this node by uid; made anew after each change of the metadata."""
        if self._version != self._broker.catalogue.version:
            self._by_uid = {queue.record.uid: queue for queue in self._broker.local_queues}
            self._version = self._broker.catalogue.version
        return self._by_uid


def _detailed(query: Query, consumers: list[dict[str, Any]]) -> dict[str, Any]:
    lists: dict[str, Any] = {"consumer_details": consumers, "incoming": [], "deliveries": []}
    return {name: found for name, found in lists.items() if query.wants(name)}


# --- lengths ---


def _lengths(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    ready, unacked = queue.backlog.count, queue.unacked_count
    row["messages"] = ready + unacked
    row["messages_ready"] = ready
    row["messages_unacknowledged"] = unacked


def _length_details(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    if not watches.is_on:
        return
    watch = watches.queues
    tracked, range_ = watch.get(queue.record.uid), query.ranges.lengths
    for name in ALL_LENGTHS:
        row[f"{name}_details"] = watch.details(tracked, watch.columns[name], range_)


def _places(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    """Add where the messages and their bodies are."""
    ready, unacked = queue.backlog.count, queue.unacked_count
    ready_bytes, unacked_bytes = queue.backlog.body_bytes, queue.unacked_bytes
    paged, paged_bytes = _paged(queue)
    persistent, persistent_bytes = _persistent(queue)
    row["messages_ready_ram"] = ready - paged
    row["messages_unacknowledged_ram"] = unacked
    row["messages_ram"] = ready - paged + unacked
    row["messages_persistent"] = persistent
    row["messages_paged_out"] = paged
    row["message_bytes"] = ready_bytes + unacked_bytes
    row["message_bytes_ready"] = ready_bytes
    row["message_bytes_unacknowledged"] = unacked_bytes
    row["message_bytes_ram"] = ready_bytes - paged_bytes + unacked_bytes
    row["message_bytes_persistent"] = persistent_bytes
    row["message_bytes_paged_out"] = paged_bytes
    held_bytes = queue.backlog.memory_bytes + unacked_bytes + unacked * MESSAGE_BYTES
    row["memory"] = QUEUE_BYTES + held_bytes + queue.letters.memory_bytes
    if queue.retries is not None:
        row["memory"] += queue.retries.memory_bytes


def _letters(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    """Add the dead letters that wait for their targets, under RabbitMQ's names for those of a quorum queue."""
    letters = queue.letters
    if letters.count or queue.settings.keeps_dead_letters:
        row["messages_dlx"] = letters.count
        row["message_bytes_dlx"] = letters.body_bytes


def _delayed(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    """Add the messages that came back from clients and wait to be ready again; they count nowhere else."""
    if queue.retries is not None:
        row["messages_delayed"] = queue.retries.count


def _paged(queue: Queue) -> tuple[int, int]:
    """Return the ready messages that are paged out, and the bytes of them that are not in memory."""
    backlog = queue.backlog
    if not backlog.is_paged:
        return 0, 0
    lengths = backlog.lengths()
    paged = lengths["q2"] + lengths["delta"] + lengths["q3"]
    in_memory = backlog.memory_bytes - (backlog.count - paged) * MESSAGE_BYTES
    return paged, max(0, backlog.body_bytes - in_memory)


def bytes_on_disk(queue: Queue) -> int:
    """Estimate the bytes of bodies that a queue has on this node's disk: of persistent messages, and paged ones."""
    _, kept_bytes = _persistent(queue)
    all_bytes = queue.backlog.body_bytes + queue.unacked_bytes
    if not all_bytes:
        return 0
    _, paged_bytes = _paged(queue)
    return kept_bytes + paged_bytes * (all_bytes - kept_bytes) // all_bytes


def _persistent(queue: Queue) -> tuple[int, int]:
    """Estimate the messages that would survive the node, and their bytes, from the first runs."""
    if not queue.is_durable:
        return 0, 0
    messages = queue.backlog.count + queue.unacked_count
    body_bytes = queue.backlog.body_bytes + queue.unacked_bytes
    runs = list(islice(_runs(queue), RUNS_LOOKED_AT))
    if all(run.envelope.persistent for run in runs):
        # Without runs, all messages are with clients or on disk: most of these are persistent.
        return messages, body_bytes
    looked_at = looked_at_bytes = kept = kept_bytes = 0
    for run in runs:
        size = run.body_bytes
        looked_at += len(run)
        looked_at_bytes += size
        if run.envelope.persistent:
            kept += len(run)
            kept_bytes += size
        if looked_at > MESSAGES_LOOKED_AT:
            break
    share, bytes_share = kept / looked_at, kept_bytes / looked_at_bytes if looked_at_bytes else 0.0
    return round(messages * share), round(body_bytes * bytes_share)


def _runs(queue: Queue) -> Iterator[Run]:
    """Yield the ready runs in memory, from the head on."""
    for level in queue.backlog.levels:
        yield from level.in_memory(0)


def _head_timestamp(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    row["head_message_timestamp"] = head_timestamp(queue)


def head_timestamp(queue: Queue) -> int | None:
    """Return the timestamp property of the next message to go out; None: it has none, or is on disk."""
    if not queue.backlog.at_hand:
        return None
    top = next(level for level in queue.backlog.levels if level.count)
    run = next(_head_of(top))
    content = run.contents[0]
    if not content[_FLAGS_AT + 1] & _TIMESTAMP_FLAG:
        return None
    return decode_content(content)[0].timestamp


def _head_of(backlog: PagedBacklog | DelayBacklog) -> Iterator[Run]:
    return iter(backlog.in_memory(0))


# --- consumers ---


def _consumers(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    consumers = queue.consumers
    capacity = round(watches.capacity.get(queue.record.uid, 1.0), 4) if consumers.all else 0
    row["consumers"] = len(consumers)
    row["consumer_capacity"] = row["consumer_utilisation"] = capacity
    row["exclusive_consumer_tag"] = consumers.all[0].tag if consumers.exclusive else None
    active = consumers.active if consumers.single_active else None
    row["single_active_consumer_tag"] = None if active is None else active.tag


def _groups(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    groups = queue.consumers.groups
    if groups is not None:
        row["message_groups"] = {"held": groups.held, "blocked": groups.blocked}


def _deduplication(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    if isinstance(queue, DeduplicatingQueue):
        row["message_deduplication"] = {"ids": queue.ids, "duplicates": queue.duplicates}


def _owner(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    owner = queue.record.exclusive_owner
    connection = None if owner is None else watches.broker.connections.get(owner)
    if connection is not None:
        peer_host, peer_port = host_and_port(connection.peer.address)
        row["owner_pid_details"] = {
            "name": connection.name,
            "peer_host": peer_host,
            "peer_port": peer_port,
        }


# --- over time ---


def _idle_since(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    tracked = watches.queues.get(queue.record.uid)
    if tracked is None or not tracked.is_idle:
        return
    if tracked.values == (queue.backlog.count, queue.unacked_count, *queue_values(queue.counters)):
        row["idle_since"] = moment(tracked.moved_ms)


def _message_stats(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    watch, values = watches.queues, (0, 0, *queue_values(queue.counters))
    tracked = watch.get(queue.record.uid)
    stats = message_stats(watch, watches.queue_tables, values, tracked, query.ranges.msg_rates)
    if stats:
        row["message_stats"] = stats


def _status(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    if queue.record.type == "quorum":
        return
    status = QueueStatus(queue, 0.0).as_json()
    numbered = queue.next_seq - 1  # RabbitMQ begins with 0
    status["next_seq_id"] = numbered
    status["next_deliver_seq_id"] = max(numbered - queue.backlog.count, 0)
    watch, tracked = watches.queues, watches.queues.get(queue.record.uid)
    for name, counter in _FLOWS.items():
        status[name] = watch.details(tracked, watch.columns[counter], None)["rate"]
    row[_CLASSIC_ONLY] = status


_FLOWS: Final = {
    "avg_ingress_rate": "publish",
    "avg_egress_rate": DELIVER_GET,
    "avg_ack_ingress_rate": "deliver",
    "avg_ack_egress_rate": "ack",
}


def _machine(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    put_machine(row, watches, query)


# --- mirrors ---


def _state(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    status = mirror_status(watches.broker, queue)
    running = [] if status is None else [each for each in status.sync.values() if each.is_running]
    row["state"] = "syncing" if running else "running"
    if running:
        row["sync_messages"] = sum(each.installed for each in running)


def _mirrors(queue: Queue, watches: Watches, query: Query, row: dict[str, Any]) -> None:
    status = mirror_status(watches.broker, queue)
    if status is None:
        return
    row["mirrors"] = [
        {
            "node": node,
            "synced": node in status.synced,
            "behind": status.pending,
            "lacks": 0 if node in status.synced else status.lacks.get(node),
            "sync": {"installed": sync.installed, "total": sync.total, "is_running": sync.is_running}
            if (sync := status.sync.get(node)) is not None
            else None,
        }
        for node in status.mirrors
    ]


def mirror_status(broker: Broker, queue: Queue) -> MirrorStatus | None:
    """Return the state of the mirrors of a queue whose master is here; None if it has none."""
    mirrors = broker.mirrors
    return None if queue.replicator is None or mirrors is None else mirrors.status(queue.record)


_PARTS: Final[tuple[Part[Queue], ...]] = (
    (frozenset(ALL_LENGTHS), _lengths),
    (frozenset(f"{name}_details" for name in ALL_LENGTHS), _length_details),
    (
        frozenset(
            {
                "messages_ready_ram",
                "messages_unacknowledged_ram",
                "messages_ram",
                "messages_persistent",
                "messages_paged_out",
                "message_bytes",
                "message_bytes_ready",
                "message_bytes_unacknowledged",
                "message_bytes_ram",
                "message_bytes_persistent",
                "message_bytes_paged_out",
                "memory",
            }
        ),
        _places,
    ),
    (frozenset({"messages_dlx", "message_bytes_dlx"}), _letters),
    (frozenset({"messages_delayed"}), _delayed),
    (frozenset({"head_message_timestamp"}), _head_timestamp),
    (
        frozenset(
            {
                "consumers",
                "consumer_capacity",
                "consumer_utilisation",
                "exclusive_consumer_tag",
                "single_active_consumer_tag",
            }
        ),
        _consumers,
    ),
    (frozenset({"message_groups"}), _groups),
    (frozenset({"message_deduplication"}), _deduplication),
    (frozenset({"owner_pid_details"}), _owner),
    (frozenset({"idle_since"}), _idle_since),
    (frozenset({"message_stats"}), _message_stats),
    (frozenset({_CLASSIC_ONLY}), _status),
    (frozenset({GARBAGE_COLLECTION, *REDUCTIONS}), _machine),
    (frozenset({"state", "sync_messages"}), _state),
    (frozenset({"mirrors"}), _mirrors),
)
