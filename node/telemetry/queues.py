"""Rows of queues: one for each copy on this node, more often for a copy whose state changes.

    traffic, or a move of a copy              at each sample
    other changes, or messages in the queue   after 60 s
    no change                                 after 5 min

A master's row has all fields, a mirror's only the progress of the copy and its cost. A sample visits all queues
in slices, like `node.statistics.sampler`, and costs one comparison for an idle queue.
Source: spark §2.3.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from node.broker.broker import Broker
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.mirrors.mirror_nodes import copies_wanted
from node.catalogue.mirrors.views import View
from node.catalogue.policy import EffectivePolicy
from node.catalogue.records import QueueRecord
from node.queue.live_queue import LiveQueue
from node.queue.metering import COUNTED, Account, Meter, MeteredQueue
from node.queue.mirroring import ReplicaFacts
from node.queue.paged_backlog import MESSAGE_BYTES
from node.statistics.queues import QUEUE_BYTES, bytes_on_disk
from node.statistics.topology_document import ring_from_master
from node.telemetry.rows import Moment, Rows, fragment

SLICE: Final = 200
ROWS_SLICE: Final = 50
"""Queues that are looked at, and those that get a row, between two breaks: less than two milliseconds."""

BUSY_MS: Final = 60_000
IDLE_MS: Final = 300_000
EARLY_MS: Final = 250
"""A sample that is early by up to this time counts as in time."""

_UTILISATION_LASTS: Final = 0.5
"""The weight of the previous sample in a queue's `consumer_util`."""

_at: Final = {name: index for index, name in enumerate(COUNTED)}


def queue_id(vhost: str, name: str) -> int:
    """Return a number for a queue that is always the same, on each node; signed, 64 bits."""
    digest = blake2b(f"{vhost}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def is_due(since_ms: int | None, *, has_moved: bool, is_changed: bool, has_messages: bool) -> bool:
    """True if a queue gets a row now.   since_ms: time since its previous row; None: it had none."""
    if since_ms is None or has_moved:
        return True
    return since_ms >= (BUSY_MS if is_changed or has_messages else IDLE_MS) - EARLY_MS


class _Tracked:
    """The state of a copy at its last row, and from look to look.

    traffic, state: two copies with the same have the same row, but for their age.
    fixed: the part of the row that is the same as long as `source` is.
    """

    __slots__ = (
        "fixed",
        "most_behind",
        "row_ms",
        "source",
        "state",
        "traffic",
        "utilisation",
    )

    def __init__(self) -> None:
        self.source: tuple[Any, ...] = ()
        self.fixed = ""
        self.traffic: tuple[Any, ...] = ()
        self.state: tuple[Any, ...] = ()
        self.row_ms: int | None = None
        self.utilisation = 1.0
        self.most_behind = 0


class QueueRows:
    """Makes the rows of one broker's queues.

    disk_cpu_ns: returns the CPU time of the disk's thread; None: unknown.
    masters, mirrors: how many there were at the last look.   memory: of messages, by kind of copy, in bytes.
    """

    def __init__(
        self, broker: Broker, meter: Meter, rows: Rows, disk_cpu_ns: Callable[[], int | None] = lambda: None
    ) -> None:
        self.masters = self.mirrors = 0
        self.memory = {"queues": 0, "mirrors": 0}
        self._broker = broker
        self._meter = meter
        self._rows = rows
        self._own = broker.settings.node_name
        self._disk_cpu_ns = disk_cpu_ns
        self._disk_spent_ns = disk_cpu_ns()
        self._tracked: dict[str, _Tracked] = {}
        self._nodes: dict[int, str] = {}

    def tick(self, moment: Callable[[], Moment], now: float) -> Iterator[list[bytes]]:
        """Look at all queues, and yield the rows that are due, slice by slice.   now: on the broker's clock."""
        members = self._broker.catalogue.members.values()
        self._nodes = {each.incarnation: each.name for each in members if each.name != self._own}
        for _ in self._share_disk():
            yield []
        seen: set[str] = set()
        masters = mirrors = 0
        memory = {"queues": 0, "mirrors": 0}
        for vhost in list(self._broker.vhosts.values()):
            found: list[bytes] = []
            looked_at = 0
            for live in list(vhost.queues.values()):
                looked_at += 1
                if is_exchange_queue(live.record.name):
                    continue  # it has no account: messages wait there, and no client uses it
                if isinstance(live, MeteredQueue):
                    if live.is_deleted:
                        continue
                    masters += 1
                    memory["queues"] += live.backlog.memory_bytes
                    seen.add(live.record.uid)
                    row = self._master(live, moment(), now)
                elif (facts := self._replica(live)) is not None:
                    mirrors += 1
                    memory["mirrors"] += facts.memory_bytes
                    seen.add(live.record.uid)
                    row = self._mirror(live.record, facts, moment())
                else:
                    continue
                if row is not None:
                    found.append(row)
                if looked_at >= SLICE or len(found) >= ROWS_SLICE:
                    yield found
                    found, looked_at = [], 0
            yield found
        self.masters, self.mirrors, self.memory = masters, mirrors, memory
        for uid in self._tracked.keys() - seen:
            del self._tracked[uid]
        for _ in self._meter.sweep(self._broker.catalogue.queue):
            yield []

    @property
    def clients_us(self) -> int:
        """The CPU time that the clients of this node took, of all queues."""
        return self._meter.windows.clients_ns // 1000

    def _share_disk(self) -> Iterator[None]:
        """Give the queues the CPU time that the disk's thread has used since the last look."""
        before, self._disk_spent_ns = self._disk_spent_ns, self._disk_cpu_ns()
        if before is not None and self._disk_spent_ns is not None:
            yield from self._meter.share_disk(self._disk_spent_ns - before)

    def _replica(self, live: LiveQueue) -> ReplicaFacts | None:
        """Return the facts of the copy here of a queue whose master is elsewhere, or has not begun."""
        record, mirrors = live.record, self._broker.mirrors
        if mirrors is None or record.view is None or record.view.member_on(self._own) is None:
            return None
        return mirrors.replica(record)

    # --- masters ---

    def _master(self, queue: MeteredQueue, moment: Moment, now: float) -> bytes | None:
        account, record, consumers = queue.account, queue.record, queue.consumers
        tracked = self._track(record)
        if consumers.all:
            can_take = any(consumer.is_waiting for consumer in consumers.all)
            tracked.utilisation += ((1.0 if can_take else 0.0) - tracked.utilisation) * _UTILISATION_LASTS
        else:
            tracked.utilisation = 1.0
        counts = account.counts(queue.counters)
        ready, unacked = queue.backlog.count, queue.unacked_count
        traffic = (record.view, ready, unacked, counts)
        lost = 0 if account.letters_lost is None else account.letters_lost.total()
        state = (len(consumers), round(tracked.utilisation, 2), account.dead_lettered, account.expired, lost)
        since_ms = self._due(tracked, traffic, state, moment, has_messages=ready + unacked > 0)
        if since_ms == _NOT_DUE:
            return None
        fields = {
            "role": "master",
            "sync_state": "synced",
            "sync_progress": 1.0,
            **self._behind(record),
            **_costs(account),
            **_contents(queue, now),
            **_counted(account, counts),
            **_consumers(queue, self._own, self._nodes, tracked.utilisation),
            "publishers_on": {node or self._own: 1 for node in account.publishers(now)} or None,
        }
        return self._rows.line("queue", fields, moment, interval_ms=since_ms, fixed=tracked.fixed)

    def _behind(self, record: QueueRecord) -> dict[str, Any]:
        """Return the amount of data that is under way to the mirrors."""
        mirrors = self._broker.mirrors
        facts = mirrors.replica(record) if mirrors is not None and record.view is not None else None
        if facts is None or not facts.is_master:
            return {}
        return {"mirror_lag_ops": facts.behind, "mirror_lag_ms": round(facts.behind_s * 1000)}

    # --- mirrors ---

    def _mirror(self, record: QueueRecord, facts: ReplicaFacts, moment: Moment) -> bytes | None:
        account = self._meter.account(record)
        tracked = self._track(record)
        view = record.view
        assert view is not None
        own = view.member_on(self._own)
        is_synced = own is not None and own.id in view.synced
        behind = facts.behind
        was_behind = tracked.traffic[2] if len(tracked.traffic) == 3 else None
        is_syncing = not is_synced and behind is not None and was_behind is not None and behind < was_behind
        tracked.most_behind = 0 if is_synced else max(tracked.most_behind, behind or 0)
        traffic = (view, facts.next_seq, behind)
        since_ms = self._due(tracked, traffic, (facts.memory_bytes,), moment, has_messages=False)
        if since_ms == _NOT_DUE:
            return None
        progress = 1.0 if is_synced else None
        if not is_synced and behind is not None and tracked.most_behind:
            progress = round(1.0 - behind / tracked.most_behind, 4)
        fields = {
            "role": "mirror",
            "sync_state": "synced" if is_synced else "syncing" if is_syncing else "unsynced",
            "sync_progress": progress,
            "mirror_lag_ops": behind,
            "mem_bytes": QUEUE_BYTES + facts.memory_bytes,
            **_costs(account),
        }
        return self._rows.line("queue", fields, moment, interval_ms=since_ms, fixed=tracked.fixed)

    # --- both ---

    def _due(
        self,
        tracked: _Tracked,
        traffic: tuple[Any, ...],
        state: tuple[Any, ...],
        moment: Moment,
        *,
        has_messages: bool,
    ) -> int | None:
        """Return since when there was no row, if there is to be one now, else `_NOT_DUE`; None for the first one."""
        since_ms = None if tracked.row_ms is None else moment.mono_ms - tracked.row_ms
        if not is_due(
            since_ms,
            has_moved=traffic != tracked.traffic,
            is_changed=state != tracked.state,
            has_messages=has_messages,
        ):
            return _NOT_DUE
        tracked.traffic, tracked.state, tracked.row_ms = traffic, state, moment.mono_ms
        return since_ms

    def _track(self, record: QueueRecord) -> _Tracked:
        tracked = self._tracked.get(record.uid)
        if tracked is None:
            tracked = self._tracked[record.uid] = _Tracked()
        catalogue = self._broker.catalogue
        policy = catalogue.effective_policy(record)
        known = tracked.source
        version = catalogue.version
        if not known or known[0] is not record or known[1] is not policy or known[2] != version:
            tracked.source = record, policy, version
            tracked.fixed = fragment(self._fixed(record, policy))
        return tracked

    def _fixed(self, record: QueueRecord, policy: EffectivePolicy) -> dict[str, Any]:
        settings = self._broker.queue_settings(record)
        members = self._broker.catalogue.members.values()
        is_named = settings.ha_mode == "nodes" and record.type != "quorum"
        named = settings.ha_params if is_named else None
        return {
            "vhost": record.vhost,
            "queue": record.name,
            "qid": queue_id(record.vhost, record.name),
            "type": record.type,
            "durable": record.durable,
            "exclusive": record.exclusive_owner is not None,
            "policy": policy.policy,
            "dead_letter_exchange": settings.dead_letter_exchange,
            "want_mirrors": max(copies_wanted(settings, record, members) - 1, 0),
            "fixed_nodes": list(named) if isinstance(named, tuple) else None,
            **_places(record, self._own),
        }


_NOT_DUE: Final = -1


def _places(record: QueueRecord, own: str) -> dict[str, Any]:
    """Return where the copies are. The ring is listed from the master on; the heir goes by the order of members."""
    view = record.view
    if view is None:
        home = record.home or own
        return {
            "master_node": home,
            "epoch": 0,
            "ring": [home],
            "synced": [home],
            "ring_pos": 0,
            "ring_size": 1,
        }
    ring = [member.node for member in ring_from_master(view)]
    synced = {member.node for member in view.ring if member.id in view.synced}
    return {
        "master_node": view.master_node,
        "epoch": view.since,
        "ring": ring,
        "synced": [node for node in ring if node in synced],
        "heir": heir_of(view),
        "ring_pos": ring.index(own) if own in ring else None,
        "ring_size": len(ring),
    }


def heir_of(view: View) -> str | None:
    """Return the node that becomes master if the master dies, as `node.catalogue.mirrors.views` promotes."""
    alive = (member for member in view.members if member.status == "alive" and member.id != view.master)
    return next((member.node for member in alive if member.id in view.synced), None)


def _costs(account: Account) -> dict[str, Any]:
    return {
        "cpu_us_total": account.cpu_ns // 1000,
        "client_us_total": account.client_ns // 1000,
        "disk_us_total": account.disk_ns // 1000,
    }


def _contents(queue: MeteredQueue, now: float) -> dict[str, Any]:
    backlog, unacked = queue.backlog, queue.unacked_count
    age_s = queue.head_age_s(now)
    held = backlog.memory_bytes + queue.unacked_bytes + unacked * MESSAGE_BYTES
    return {
        "ready": backlog.count,
        "unacked": unacked,
        "msg_bytes": backlog.body_bytes + queue.unacked_bytes,
        "mem_bytes": QUEUE_BYTES + held,
        "disk_bytes": bytes_on_disk(queue),
        "head_age_ms": None if age_s is None else round(age_s * 1000),
    }


def _counted(account: Account, counts: tuple[int, ...]) -> dict[str, Any]:
    delivered = counts[_at["deliver"]] + counts[_at["deliver_no_ack"]]
    got = counts[_at["get"]] + counts[_at["get_no_ack"]]
    return {
        "pub_total": counts[_at["publish"]],
        "pub_bytes_total": account.pub_bytes,
        "dlv_total": delivered + got,
        "dlv_bytes_total": account.dlv_bytes,
        "ack_total": counts[_at["ack"]],
        "redeliver_total": counts[_at["redeliver"]],
        "get_total": got,
        "dead_lettered_total": account.dead_lettered,
        "dead_letters_lost_total": 0 if account.letters_lost is None else account.letters_lost.total(),
        "dead_letters_lost_by": account.letters_lost,
        "expired_total": account.expired,
        "dropped_total": account.dropped,
        "confirm_us": account.confirm_us,
    }


def _consumers(queue: MeteredQueue, own: str, nodes: Mapping[int, str], utilisation: float) -> dict[str, Any]:
    """Return the facts of a queue's consumers.   nodes: of other incarnations than our own."""
    consumers = queue.consumers.all
    if not consumers:
        return {"consumers": 0, "prefetch_sum": 0}
    limits = [consumer.prefetch for consumer in consumers]
    return {
        "consumers": len(consumers),
        "consumer_util": round(utilisation, 4),
        "prefetch_sum": sum(limits) if all(limits) else None,
        "consumers_on": dict(Counter(nodes.get(consumer.incarnation, own) for consumer in consumers)),
    }
