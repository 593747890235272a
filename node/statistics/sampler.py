"""Sample every object of the node in one tick, a few hundred at a time.

The broker goes on between slices, so a tick's values aren't of one moment. Totals never fall for that: the counters
of objects that are gone are read before those of the rest, so an object that ends meanwhile counts once, in this
tick or in the next.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import add, attrgetter
from typing import Final

from node.amqp.channel_state import ChannelState
from node.client.connection import Connection
from node.client.vhost import LiveVhost
from node.queue.queue import Queue
from node.statistics.channels import channel_id
from node.statistics.connections import connection_id, is_shown
from node.statistics.exchanges import exchange_id
from node.statistics.message_stats import CHANNEL, channel_values, exchange_values, queue_values
from node.statistics.watches import CHURN, NODE, OCTETS, Watches

SLICE: Final = 400
"""The objects between two breaks: about a millisecond."""

_churn_values: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*CHURN)
_octets: Final[Callable[[object], tuple[int, ...]]] = attrgetter(*OCTETS)
_NO_COUNTS: Final = (0,) * len(CHANNEL)

_CAPACITY_LASTS: Final = 0.5
"""The share of a queue's capacity at one tick that is kept for the next."""
_FULL: Final = 0.999
_SETTLING_TICKS: Final = 2


class _Sums:
    """The sums of a vhost, or of all of them, during a tick.

    lengths: ready and unacknowledged messages.   channels, octets: what channels and connections have counted.
    """

    def __init__(self, ended: Sequence[int], octets: Sequence[int]) -> None:
        self.lengths: Sequence[int] = (0, 0)
        self.channels = ended
        self.octets = octets

    def add(self, other: "_Sums") -> None:
        """Add the lengths of another one."""
        self.lengths = tuple(map(add, self.lengths, other.lengths))

    def values(self, former: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the sums as they are watched.   former: at the last tick; counters don't fall below."""
        counters = (*self.channels, *self.octets)
        if former is not None:
            counters = tuple(map(max, counters, former[2:]))
        return (*self.lengths, *counters)


class Sampler:
    """Takes samples of one broker."""

    def __init__(self, watches: Watches) -> None:
        self._broker = watches.broker
        self._watches = watches
        self._members: frozenset[tuple[str, int]] | None = None
        self._settling = 0  # ticks until queues have got over a change of the members
        self._disk = [0, 0]  # reads and writes of all queues, also of those that are gone

    def tick(self, time_ms: int) -> Iterator[None]:
        """Sample all objects; yields between slices.   time_ms: the time of day."""
        watches, broker = self._watches, self._broker
        watches.clock.begin(time_ms)
        watches.budget.review()
        node = _Sums(channel_values(broker.counters.ended), _octets(broker.counters))
        vhosts = [(live, _Sums(channel_values(live.ended), _octets(live))) for live in broker.vhosts.values()]
        for live, sums in vhosts:
            yield from self._queues(live, sums)
            yield from self._exchanges(live)
            node.add(sums)
        yield from self._connections(node, {live.name: sums for live, sums in vhosts})
        for live, sums in vhosts:
            known = watches.vhosts.get(live.name)
            is_known = known is not None and known.source is live
            watches.vhosts.note(live.name, live, sums.values(known.values if known and is_known else None))
        self._note_node(node)
        self._note_members(node)
        yield
        for watch in watches.all:
            watch.sweep()
            yield
        for uid in [uid for uid in watches.capacity if watches.queues.get(uid) is None]:
            del watches.capacity[uid]
        watches.clock.end()

    def _note_members(self, sums: _Sums) -> None:
        """Note from when on lengths are comparable: when nodes come or go, queues move, and their samples with them."""
        watches = self._watches
        members = frozenset(
            (each.name, each.incarnation) for each in self._broker.catalogue.members.values() if each.is_up
        )
        if self._members is None:
            is_begun_anew = bool(any(sums.lengths) or len(members) > 1)
            self._settling = 1 if is_begun_anew else 0
        elif members != self._members:
            self._settling = _SETTLING_TICKS
        self._members = members
        if self._settling:
            self._settling -= 1
            watches.lengths_since_ms = watches.clock.ticking_ms

    def _note_node(self, sums: _Sums) -> None:
        watch, former = self._watches.node, self._watches.node.get(NODE)
        values = sums.values(None if former is None else former.values[: 2 + len(CHANNEL) + len(OCTETS)])
        watch.note(NODE, self._broker, (*values, *self._disk, *_churn_values(self._broker.counters)))

    def _queues(self, vhost: LiveVhost, sums: _Sums) -> Iterator[None]:
        note, disk, tick = self._watches.queues.note, self._disk, self._watches.clock.ticking_ms
        all_ready = all_unacked = 0
        for count, queue in enumerate(list(vhost.queues.values()), 1):
            if isinstance(queue, Queue) and not queue.is_deleted:
                ready, unacked = queue.backlog.count, queue.unacked_count
                all_ready += ready
                all_unacked += unacked
                values = (ready, unacked, *queue_values(queue.counters))
                tracked = note(queue.record.uid, queue, values)
                if tracked.moved_ms == tick:
                    is_new = tracked.since_ms == tick
                    disk[0] += values[-2] - (0 if is_new else tracked.before[-2])
                    disk[1] += values[-1] - (0 if is_new else tracked.before[-1])
                if queue.consumers.all:
                    self._take_capacity(queue)
            if not count % SLICE:
                yield
        sums.lengths = all_ready, all_unacked
        yield

    def _take_capacity(self, queue: Queue) -> None:
        """Note whether a consumer could take a message now."""
        capacity, uid = self._watches.capacity, queue.record.uid
        can_take = any(consumer.is_waiting for consumer in queue.consumers.all)
        if can_take and uid not in capacity:
            return
        now = capacity.get(uid, 1.0) * _CAPACITY_LASTS + (1 - _CAPACITY_LASTS) * can_take
        if now > _FULL:
            del capacity[uid]
        else:
            capacity[uid] = now

    def _exchanges(self, vhost: LiveVhost) -> Iterator[None]:
        note = self._watches.exchanges.note
        for count, (name, counters) in enumerate(list(vhost.exchange_counters.items()), 1):
            note(exchange_id(vhost.name, name), counters, exchange_values(counters))
            if not count % SLICE:
                yield

    def _connections(self, node: _Sums, vhosts: dict[str, _Sums]) -> Iterator[None]:
        count = 0
        for connection in list(self._broker.connections.values()):
            octets = _octets(connection)
            node.octets = tuple(map(add, node.octets, octets))
            of_vhost = vhosts.get(connection.vhost)
            if of_vhost is not None:
                of_vhost.octets = tuple(map(add, of_vhost.octets, octets))
                self._channels(connection, node, of_vhost)
                if is_shown(connection):
                    self._watches.connections.note(connection_id(connection), connection, octets)
            count += 1 + len(connection.channels)
            if count >= SLICE:
                count = 0
                yield
        yield

    def _channels(self, connection: Connection, node: _Sums, vhost: _Sums) -> None:
        note, is_watched = self._watches.channels.note, is_shown(connection)
        for channel in connection.channels.values():
            if channel.state is not ChannelState.OPEN:
                continue
            values = channel_values(channel.counters)
            if values != _NO_COUNTS:
                node.channels = tuple(map(add, node.channels, values))
                vhost.channels = tuple(map(add, vhost.channels, values))
            if is_watched:
                note(channel_id(channel), channel, values)
