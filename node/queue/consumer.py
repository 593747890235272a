"""A consumer, and the consumers of a queue with the order in which they are served.

The order is round robin among the consumers of the highest priority that can take more; each message moves its consumer
to the back. Because the outcome is the same, a run is dealt out to different channels by stride instead of message
by message.
Source: amqp-behaviour §4.6, §4.8.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from node.amqp.field_table import Table
from node.queue.groups import Groups
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.run import Run
from node.scheduling.chores import Chore

if TYPE_CHECKING:
    from node.queue.live_queue import LiveQueue

UNLIMITED: Final = 1 << 62
"""The credit of a consumer without a prefetch limit."""

RUN_COST: Final = 10
"""The cost to deliver a run beside its messages, in messages."""

NEXT_RUN_COST: Final = 2
"""The same for further runs that go to a consumer together with the first one."""

PUMPED_MAX: Final = 8192
"""The cost at which `Consumers.dispatch` stops for a turn, some 4 ms: the rest is delivered in the next turn."""

_CANCELLED_AT_ONCE: Final = 20
"""The consumers of a deleted queue that are cancelled between two looks at the clock."""

_FRAME_BYTES: Final = 96
"""The bytes of a small message on the wire beside its body, to estimate how many fit a socket's budget."""


class Ready(Protocol):
    """Ready messages, as far as consumers see them: a `PagedBacklog` or a `PriorityBacklog`."""

    @property
    def at_hand(self) -> int:
        """The number of messages that can be taken now."""

    @property
    def mean_bytes(self) -> int:
        """The mean size of the bodies at hand, in bytes."""

    @property
    def head_expiry(self) -> float:
        """The time at which the message at the head expires."""

    def take(self, limit: int) -> Run:
        """Remove and return up to `limit` messages from the head."""

    def take_runs(self, limit: int) -> list[Run]:
        """Remove and return runs from the head that have up to `limit` messages together."""


class Outlet(Protocol):
    """The channel of a consumer, as the queue sees it."""

    def credit(self, consumer: "Consumer") -> int:
        """Return how many messages the consumer may be given now as far as prefetch counts; 0 or less for none."""

    def room_bytes(self) -> int:
        """Return the bytes that the channel's connection may still be given this turn; 0 or less for none."""

    def deliver(self, consumer: "Consumer", run: Run, now: float) -> None:
        """Send messages to the client."""

    def deliver_runs(self, consumer: "Consumer", runs: list[Run], now: float) -> None:
        """Send the messages of several runs to the client."""

    def block(self, consumer: "Consumer") -> None:
        """Note that the consumer was left out for want of credit or room.

        `Consumers.rejoin` is to be called when it has some.
        """

    def cancelled_by_server(self, consumer: "Consumer") -> None:
        """Forget the consumer and tell the client: the queue is gone."""

    def reattached(self, consumer: "Consumer", queue: "LiveQueue") -> "Consumer | None":
        """Return the consumer that is to join `queue` in the place of one whose queue has another master.

        None: the client wanted to be told then that the consumer is gone, or it has cancelled it.
        """


class Consumer:
    """A subscription of a channel to a queue.

    prefetch: how many messages it may hold unacknowledged; 0 for no limit.   unacked: how many it holds.
    is_near: its client is connected to this node.   last_tag: its latest delivery's tag on its channel, 0: none yet.
    """

    is_near = True

    __slots__ = (
        "arguments",
        "channel",
        "exclusive",
        "frames",
        "is_waiting",
        "last_tag",
        "no_ack",
        "prefetch",
        "priority",
        "queue",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        tag: str,
        channel: Outlet,
        queue: "LiveQueue",
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        prefetch: int = 0,
        arguments: Table | None = None,
    ) -> None:
        self.tag = tag
        self.channel = channel
        self.queue = queue
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.prefetch = 0 if no_ack else prefetch
        self.arguments = arguments or {}
        self.unacked = self.last_tag = 0
        self.is_waiting = False
        """True if it is in the rotation of its queue."""
        self.frames: dict[tuple[bytes, bool], tuple[bytes, bytes]] = {}
        """The constant parts of its deliver frames, kept by the channel."""

    @property
    def incarnation(self) -> int:
        """The incarnation of the node that the consumer's client is connected to; 0: this node."""
        return 0


class Consumers:
    """The consumers of one queue.

    single_active: only one of them is served, the first that came; after it the one of highest priority, then
        age.
    """

    def __init__(self, *, single_active: bool = False) -> None:
        self.all: list[Consumer] = []  # by age
        self.single_active = single_active
        self.active: Consumer | None = None
        """The consumer that is served where only one is."""
        self._levels: dict[int, deque[Consumer]] = {}  # in rotation, by priority; none is empty
        self._priorities: list[int] = []  # of _levels, highest first
        self._holds = 0
        self.groups: Groups[Consumer] | None = None
        """The rule by which messages of a group go to one consumer; None: the queue has no groups."""

    def __len__(self) -> int:
        return len(self.all)

    @property
    def are_waiting(self) -> bool:
        """True if any consumer may take a message, as far as is known."""
        return bool(self._priorities) and not self._holds

    @property
    def highest_waiting(self) -> int | None:
        """The highest priority of a consumer that may take a message, as far as is known; None: there is none."""
        return self._priorities[0] if self._priorities else None

    @property
    def exclusive(self) -> bool:
        """True if one consumer has the queue to itself."""
        return bool(self.all) and self.all[0].exclusive

    def add(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.all.append(consumer)
        if self.single_active and self.active is None:
            self.active = consumer
        self.rejoin(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer; if it was the active one the next takes over."""
        self.all.remove(consumer)
        self._leave(consumer)
        if self.active is consumer:
            # `max` returns the first of equal consumers, which is the oldest.
            self.active = max(self.all, key=lambda waiting: waiting.priority, default=None)
            if self.active is not None:
                self.rejoin(self.active)

    def cancel_all(self) -> Chore:
        """Remove all consumers and tell their clients, as the queue was deleted."""
        while self.all:
            for consumer in self.all[:_CANCELLED_AT_ONCE]:
                self.remove(consumer)
                consumer.channel.cancelled_by_server(consumer)
            yield

    def take_near(self) -> list[Consumer]:
        """Remove all consumers, as the queue has another master; return those of this node, the active one first.

        Consumers of other nodes are cancelled here: their nodes tell the clients. No auto-delete queue is deleted.
        """
        active = self.active
        gone = list(self.all)
        for consumer in gone:
            self.remove(consumer)
            if not consumer.is_near:
                consumer.channel.cancelled_by_server(consumer)
        near = [consumer for consumer in gone if consumer.is_near]
        near.sort(key=lambda consumer: consumer is not active)
        return near

    def rejoin(self, consumer: Consumer) -> None:
        """Put a consumer that can take messages (again) behind the others of its priority."""
        if consumer.is_waiting or (self.single_active and consumer is not self.active):
            return
        consumer.is_waiting = True
        if consumer.priority not in self._levels:
            self._levels[consumer.priority] = deque()
            self._priorities = sorted(self._levels, reverse=True)
        self._levels[consumer.priority].append(consumer)

    def hold(self) -> None:
        """Give out nothing until `release`, which must be called once for each `hold`."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`. If it was the last one, the caller has to have the queue give out messages."""
        self._holds -= 1

    def _leave(self, consumer: Consumer) -> None:
        if not consumer.is_waiting:
            return
        consumer.is_waiting = False
        level = self._levels[consumer.priority]
        level.remove(consumer)
        if not level:
            del self._levels[consumer.priority]
            self._priorities = sorted(self._levels, reverse=True)

    def dispatch(
        self,
        backlog: Ready,
        now: float,
        drop_expired: Callable[[float], None] | None = None,
        *,
        cost_max: int = UNLIMITED,
    ) -> bool:
        """Give out ready messages until there are no more or no consumer can take one.

        drop_expired: removes what has expired at the head; None where nothing expires, or a new message may go
            out before it does.
        cost_max: when to stop before that, about: in messages, and `RUN_COST` for each run.
        Returns: True if it stopped for `cost_max`.
        """
        if self._holds:
            return False
        if self.groups is not None:
            assert isinstance(backlog, PagedBacklog | PriorityBacklog), "other backlogs have no consumers"
            return self.groups.dispatch(self, backlog.levels, now, drop_expired, cost_max)
        expired_by = now if drop_expired is not None else None
        while self._priorities and backlog.at_hand:
            if drop_expired is not None and backlog.head_expiry <= now:
                drop_expired(now)
                continue
            if cost_max <= 0:
                return True
            level = self._levels[self._priorities[0]]
            if len(level) == 1:
                cost_max -= self._serve_one(level[0], backlog, now, expired_by, cost_max)
            elif backlog.at_hand < len(level) or _share_a_channel(level):
                cost_max -= RUN_COST
                self._serve_next(level, backlog, now)
            else:
                cost_max -= self._deal(level, backlog, now)
        return False

    def _serve_one(
        self, consumer: Consumer, backlog: Ready, now: float, expired_by: float | None, cost_max: int
    ) -> int:
        """Give the only consumer of a level all that it can take; return the cost."""
        limit = _limit(consumer, backlog)
        if not limit:
            self._block(consumer)
        cost = 0
        while limit and backlog.at_hand and (expired_by is None or backlog.head_expiry > expired_by):
            if cost >= cost_max:
                break
            # Messages of several runs may expire at different times.
            runs = backlog.take_runs(limit) if expired_by is None else [backlog.take(limit)]
            if len(runs) == 1:
                count = len(runs[0].contents)
                consumer.channel.deliver(consumer, runs[0], now)
            else:
                count = sum(map(len, runs))
                consumer.channel.deliver_runs(consumer, runs, now)
            limit -= count
            cost += RUN_COST + NEXT_RUN_COST * (len(runs) - 1) + count
        return cost

    def _serve_next(self, level: deque[Consumer], backlog: Ready, now: float) -> None:
        """Give one message to the first of several consumers.

        On one channel the order of deliveries is visible; and few messages need no look at each of many consumers.
        """
        consumer = level[0]
        if not _limit(consumer, backlog):
            self._block(consumer)
            return
        consumer.channel.deliver(consumer, backlog.take(1), now)
        level.rotate(-1)

    def _deal(self, level: deque[Consumer], backlog: Ready, now: float) -> int:
        """Give as many messages to each of several channels' consumers as all of them can take, by stride.

        Returns: the cost.
        """
        limits = [_limit(consumer, backlog) for consumer in level]
        if not all(limits):
            for consumer, limit in zip(list(level), limits, strict=True):
                if not limit:
                    self._block(consumer)
            return len(limits)
        turns = len(level)
        run = backlog.take(min(limits) * turns)
        for index, consumer in enumerate(list(level)[: len(run)]):
            consumer.channel.deliver(consumer, run[index::turns], now)
        level.rotate(-(len(run) % turns))
        return len(run) + RUN_COST * min(turns, len(run))

    def _block(self, consumer: Consumer) -> None:
        self._leave(consumer)
        consumer.channel.block(consumer)

    # --- one message after the other, for groups ---

    def group_by(self, header: str | None) -> bool:
        """Have messages with the same value of a header go to one consumer; None: to any. True: that is new.

        Messages that are out with clients do not count for groups that begin now.
        """
        if header == (None if self.groups is None else self.groups.header):
            return False
        if self.groups is not None:
            self.groups.close()
        self.groups = None if header is None else Groups(header)
        return True

    def next_with_room(self, backlog: Ready) -> Consumer | None:
        """Return the consumer whose turn it is, None if no consumer can take a message."""
        while self._priorities:
            consumer = self._levels[self._priorities[0]][0]
            if self.has_room(consumer, backlog):
                return consumer
        return None

    def has_room(self, consumer: Consumer, backlog: Ready) -> bool:
        """Return True if a consumer can take a message; else it is left out until it can."""
        if _limit(consumer, backlog):
            return True
        self._block(consumer)
        return False

    def give(self, consumer: Consumer, run: Run, now: float) -> None:
        """Deliver one message to a consumer, whose next turn comes after those of the others."""
        consumer.channel.deliver(consumer, run, now)
        if consumer.is_waiting:
            level = self._levels[consumer.priority]
            if level[0] is consumer:
                level.rotate(-1)
            else:
                level.remove(consumer)
                level.append(consumer)


def _share_a_channel(level: deque[Consumer]) -> bool:
    return len({consumer.channel for consumer in level}) < len(level)


def _limit(consumer: Consumer, backlog: Ready) -> int:
    """Return how many messages a consumer can take now; 0 when it must be left out."""
    channel = consumer.channel
    credit, room = channel.credit(consumer), channel.room_bytes()
    if credit <= 0 or room <= 0:
        return 0
    return min(credit, room // (backlog.mean_bytes + _FRAME_BYTES) + 1)
