"""One broker: the catalogue with the live queues, routers and connections that follow from it.

The broker reacts to the events of the catalogue, carries messages from routes to queues and from queues to
dead-letter exchanges, and knows which queues and connections have work left for the end of the turn. It does
no I/O: a shell calls it with the time and writes what the connections have to say.

    connection.receive_data(bytes) ─► channels ─► queues ─► touched
    shell: broker.turn(now), then flush every dirty connection
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from node.amqp.field_table import Table
from node.broker import holding
from node.broker.damages import Damages
from node.broker.dead_letters import DeadLetters
from node.broker.delayed_messages import DelayedMessages
from node.broker.deletions import Deletions
from node.broker.following import Following
from node.broker.handoff import attach, publish_again
from node.broker.mass_deletion import InPieces
from node.broker.queue_watches import QueueWatches
from node.catalogue import events
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, DeclareDelayed, DeclareExchange, DeclareQueue, ExchangeDeclared
from node.catalogue.exchange_queues import exchange_queue, queue_arguments
from node.catalogue.mirrors.placement import Placement
from node.catalogue.mirrors.views import stored_uid
from node.catalogue.names import home_is_down, not_found
from node.catalogue.policy import NO_POLICY, QueueSettings, queue_settings
from node.catalogue.records import QueueRecord
from node.catalogue.replicated_log import LocalLog, ReplicatedLog
from node.client.alarms import Alarms
from node.client.authority import Authority
from node.client.client_names import ClientNames
from node.client.counters import BrokerCounters
from node.client.delivery_interception import DeliveryInterception
from node.client.interception import Interceptor
from node.client.observer import Observer
from node.client.pairs import Pairs
from node.client.reply_to import ReplyConsumers, incarnation_of, is_reply_name
from node.client.settings import BrokerSettings
from node.client.vhost import LiveVhost
from node.queue.content import properties_of
from node.queue.intake import Intake
from node.queue.kinds import new_queue
from node.queue.live_queue import Asked, Handoff, LiveQueue, Peers, at_once, move
from node.queue.metering import Meter
from node.queue.mirroring import Mirroring
from node.queue.paging import Pager
from node.queue.pending_publish import PublishWaiter
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from node.queue.storage import MemoryStorage, QueueStorage, Storage
from node.routing.exchange_types import ExchangeTypes, no_plugin
from node.routing.plugins import Plugin
from node.scheduling.chores import Chore, Chores
from node.scheduling.timers import Timers
from node.scheduling.turn import TURN_S, Turn
from node.scheduling.waste import Waste

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel
    from node.client.connection import Connection

DirectClients: TypeAlias = "dict[BaseConnection, Callable[[], None]]"
"""Connections of clients in this process, which no shell flushes, with a callback for output."""

FLOW_ENDS_MAX: Final = 50
"""The most held publishers that are read from again in one turn: each may cost as much as its share of a turn."""


DELETED_AT_ONCE: Final = 50
"""The exclusive queues that are deleted between two looks at the clock, at some 0.1 ms each. Deleting single ones
between other work was seen to leave their memory half in use."""


UID_BYTES: Final = 16
"""The random bytes in the id of a queue."""


class Broker:
    """One broker: the catalogue and the live objects of a node.

    entropy: returns that many random bytes.   epoch_s: the difference between the time of day and the broker's clock.
    storage: keeps messages on disk.   pager: decides when queues move messages there to free memory.
    catalogue, timers: given if other objects share them.
    meter: keeps an account of each queue's cost; None: it is not needed.
    clock: seconds, monotonic, by which a turn is bounded; the default stands still, and bounds nothing.
    load_plugin: returns the plug-in of a name, None if it is not installed; called when it is enabled.
    wake: called when work for the end of the turn comes up.
    """

    authority: Authority | None = None
    """The auth backends of plug-ins, set before there are clients; None: there is the catalogue alone."""

    interceptors: Sequence[Interceptor] = ()
    """The interceptors of plug-ins, which routes that are opened lead to; see `node.broker.intercepting`."""

    delivery_interception: DeliveryInterception | None = None
    """Those of deliveries, to which consumers lead; None: they lead to their channels."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        entropy: Callable[[int], bytes],
        epoch_s: float = 0.0,
        observer: Observer | None = None,
        storage: Storage | None = None,
        pager: Pager | None = None,
        catalogue: Catalogue | None = None,
        timers: Timers | None = None,
        meter: Meter | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        load_plugin: Callable[[str], Plugin | None] = no_plugin,
    ) -> None:
        self.settings = settings
        self.turns = Turn(clock, lambda: self.wake())
        self.chores = Chores(clock, lambda: self.wake())
        self._waste = Waste(self.chores.begin)
        self.closing: dict[Channel, None] = {}
        """Closed channels that have not given back all of their messages and consumers yet."""
        self.meter = meter
        self.storage: Storage = storage or MemoryStorage()
        self.pager = pager
        self.intake: Intake = Intake(self)
        self.entropy = entropy
        self.epoch_s = self.storage.epoch_s = epoch_s
        self.observer = observer or Observer()
        warn, let_go_on = self._warn_publishers, self._let_publishers_go_on
        self.alarms = Alarms(settings.node_name, self.observer, on_first=warn, on_last=let_go_on)
        self.in_flow: dict[BaseConnection, None] = {}
        """Publishers that aren't read from until the storage has room, in the order in which they began to wait."""
        self.counters = BrokerCounters()
        self.now = 0.0
        self.timers = timers if timers is not None else Timers()
        self.pairs = Pairs(self.timers)
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        self.exchange_types = ExchangeTypes(load_plugin, entropy, properties_of, self.observer.plugin_failed)
        self.following = Following(self)
        self.log = LocalLog(self.catalogue, self.react)
        self.peers: Peers | None = None
        """Set before there is any queue on another node."""
        self.mirrors: Mirroring | None = None
        """Set before there is any mirrored queue."""
        self.vhosts: dict[str, LiveVhost] = {}
        self.connections: dict[str, Connection] = {}
        self.direct_clients: DirectClients = {}
        self.stuck_disks: frozenset[str] = frozenset()
        """Nodes whose message disks make no progress: they get no new copies of queues."""
        self.connection_counts: Counter[tuple[str | None, str | None]] = Counter()
        """Open connections of a vhost (vhost, None) and of a user (None, user)."""
        self.remote_counts: Counter[tuple[str | None, str | None]] = Counter()
        """The same of all other nodes together, as far as they are known."""
        self.channel_counts: Counter[str] = Counter()
        """Open channels by user."""
        self.remote_channel_counts: Counter[str] = Counter()
        """The same of all other nodes together, of users with a limit of channels."""
        self.reply_consumers, self.queue_watches = ReplyConsumers(), QueueWatches()
        self.client_names = ClientNames(self)
        self.wake: Callable[[], None] = lambda: None
        self._touched: dict[Queue, None] = {}
        self._dirty: dict[BaseConnection, None] = {}
        self.dead_letters = DeadLetters(self)
        self.delayed = DelayedMessages(self)
        self.damages = Damages(self)
        self._connection_numbers = count(1)
        self._plain_settings = NO_POLICY, queue_settings({}, NO_POLICY)
        """The last queue without arguments: of many queues most are like that, and under the same policy."""
        self._deletions = Deletions(lambda command, on_applied: self.log.submit(command, on_applied))

    @property
    def log(self) -> ReplicatedLog:
        """The log through which the catalogue is changed."""
        return self._log

    @log.setter
    def log(self, log: ReplicatedLog) -> None:
        self._log: InPieces = InPieces(log, self.catalogue, lambda: self.wake())

    # --- the turn ---

    def touch(self, queue: Queue) -> None:
        """Call the queue's `pump` at the end of the turn: there may be something to deliver."""
        if not self._touched:
            self.wake()
        self._touched[queue] = None

    def touch_last(self, queue: Queue) -> None:
        """Call the queue's `pump` after those of all queues touched before."""
        self._touched.pop(queue, None)
        self.touch(queue)

    def has_output(self, connection: "BaseConnection") -> None:
        """Have the connection flushed at the end of the turn."""
        if not self._dirty:
            self.wake()
        self._dirty[connection] = None

    @property
    def has_work(self) -> bool:
        """True if a turn has something to do."""
        return bool(
            self._touched
            or self._dirty
            or self.turns.has_work
            or self.chores.has_work
            or self._log.has_work
            or self.dead_letters.has_work
            or self.delayed.has_work
            or self.damages.has_work
            or self.storage.has_work
            or (self.in_flow and not self.storage.is_congested)
            or (self.pager is not None and self.pager.has_work)
            or self.following.has_work
            or (self.mirrors is not None and self.mirrors.has_work)
            or (self.peers is not None and self.peers.has_work)
        )

    def turn(self, now: float) -> "Collection[BaseConnection]":
        """Deliver from every touched queue, and hand over to the disk what is due.

        Returns: the connections for the shell to flush, which then are no longer on the list.
        """
        self.now = now
        if self.turns.has_work:
            self.turns.serve_short()
        if self.in_flow:
            self._end_flow(FLOW_ENDS_MAX)
        if self.chores.has_work:
            self.chores.turn()
        if self._log.has_work:
            self._log.turn()
        if self.following.has_work:
            self.following.turn()
        if self.dead_letters.has_work:
            self.dead_letters.turn()
        if self.delayed.has_work:
            self.delayed.turn()
        if self.damages.has_work:
            self.damages.turn()
        watches = self.queue_watches.over(self._touched) if self.queue_watches else ()
        self._pump(now)
        for watch in watches:
            watch()
        if self.pager is not None and self.pager.has_work:
            self.pager.turn()
        if self.mirrors is not None:  # before the disk, on which the mirrors' way round does not wait
            self.mirrors.turn(now)
        if self.storage.has_work:
            self.storage.turn(now)
        if self.peers is not None:
            self.peers.turn(now)
        self.chores.end_turn()
        dirty = self.take_dirty()
        # What the long line does now is delivered and flushed by the next turn: those of this turn don't wait for it.
        self.turns.end()
        return dirty

    @property
    def has_deliveries(self) -> bool:
        """True if the coming turn delivers from queues."""
        return bool(self._touched)

    def take_dirty(self) -> "Collection[BaseConnection]":
        """Return the connections for the shell to flush, which then are no longer on the list."""
        dirty, self._dirty = self._dirty, {}
        for connection in self.direct_clients.keys() & dirty.keys() if self.direct_clients else ():
            del dirty[connection]
            self.direct_clients[connection]()
        return dirty

    def _pump(self, now: float) -> None:
        """Deliver from the queues that were touched; those that the turn has no time for come first in the next one."""
        queues = deque(self._touched)
        self._touched.clear()
        clock = self.turns.clock
        ends_at = clock() + TURN_S
        try:
            while queues:
                queues.popleft().pump(now)
                if clock() > ends_at:
                    break
        finally:
            if queues:  # also after a fault of ours in one of them
                later, self._touched = self._touched, {}
                for queue in (*queues, *later):
                    self.touch(queue)

    def tick(self, now: float) -> None:
        """Run the timers that are due."""
        self.now = now
        self.storage.epoch_s = self.epoch_s
        self.timers.run(now)

    def start(self, now: float) -> None:
        """Begin the checks that are made regularly."""
        self.now = now
        self.timers.at(now + self.settings.channel_tick_s, self._look_at_connections)

    def _look_at_connections(self, now: float) -> None:
        for connection in list(self.connections.values()):
            connection.check_consumer_timeouts(now)
            connection.renew_routes()
        self.timers.at(now + self.settings.channel_tick_s, self._look_at_connections)

    def begin(self, chore: Chore) -> None:
        """Do long work, at once or in pieces."""
        self.chores.begin(chore)

    def discard(self, runs: list[Run]) -> None:
        """Free runs that nobody needs any more, in pieces."""
        self._waste.add(runs)

    # --- connections ---

    def register(self, connection: "Connection") -> tuple[int, str]:
        """Add a new connection; return its number and id."""
        number = next(self._connection_numbers)
        name = f"{self.settings.node_name}.{number}"
        self.connections[name] = connection
        return number, name

    def opened(self, connection: "Connection") -> None:
        """Count a connection that has opened its vhost."""
        self.counters.connection_created += 1
        self.connection_counts[connection.vhost, None] += 1
        self.connection_counts[None, connection.user_name] += 1

    def connection_count(self, vhost: str | None, user: str | None) -> int:
        """Return the number of open connections in the whole cluster, of a vhost or of a user."""
        return self.connection_counts[vhost, user] + self.remote_counts[vhost, user]

    def channel_count(self, user: str) -> int:
        """Return the number of a user's open channels in the whole cluster."""
        return self.channel_counts[user] + self.remote_channel_counts[user]

    def forget(self, connection: "Connection") -> None:
        """Forget a connection that is gone."""
        del self.connections[connection.id]
        self.counters.recv_oct += connection.recv_oct
        self.counters.send_oct += connection.send_oct
        if connection.vhost:
            self.counters.connection_closed += 1
            if (live := self.vhosts.get(connection.vhost)) is not None:
                live.recv_oct += connection.recv_oct
                live.send_oct += connection.send_oct
            self.connection_counts[connection.vhost, None] -= 1
            self.connection_counts[None, connection.user_name] -= 1
        self._dirty.pop(connection, None)
        self.direct_clients.pop(connection, None)

    @property
    def channels(self) -> "Iterator[Channel]":
        """Yield all channels that may have deliveries: the open ones, and closed ones that have not given them back
        yet.
        """
        for connection in self.connections.values():
            yield from connection.channels.values()
        yield from self.closing

    def close_connections(
        self, reason: str, chosen: "Callable[[Connection], bool]" = lambda connection: True
    ) -> None:
        """Close connections with 320 and this reason."""
        for connection in [each for each in self.connections.values() if chosen(each)]:
            connection.force_close(reason)

    def relieved(self) -> None:
        """Read from held publishers again in the coming turns, as the storage has room."""
        if self.in_flow or self.peers is not None:
            self.wake()

    def _end_flow(self, limit: int) -> None:
        """Read again from up to `limit` publishers, unless the storage gets congested again."""
        for connection in list(islice(self.in_flow, limit)):
            if self.storage.is_congested or self.turns.is_full:
                break
            del self.in_flow[connection]
            connection.throttle.flow_ended()

    def _warn_publishers(self) -> None:
        for connection in self.connections.values():
            connection.throttle.alarm_began()

    def _let_publishers_go_on(self) -> None:
        for connection in self.connections.values():
            connection.throttle.alarm_ended()
        self.relieved()

    def delete_exclusive_queues(self, connection: "Connection") -> Chore:
        """Return the chore that deletes the exclusive queues of a connection that ends (amqp-behaviour §3.13)."""
        records = self.following.exclusive_queues(connection.id)
        for at in range(0, len(records), DELETED_AT_ONCE):
            for record in records[at : at + DELETED_AT_ONCE]:
                self._deletions.add(record)
            yield

    # --- routing and publishing ---

    def route(
        self,
        vhost: str,
        exchange: str,
        routing_keys: Sequence[str],
        headers: Table | None,
        content: bytes | None = None,
        past: str | None = None,
    ) -> Sequence[LiveQueue]:
        """Return the queues that a message goes to, each once, as `Router.route`. Raises: ProtocolError 406."""
        live = self.vhosts[vhost]
        return [
            live.queues[name] for name in live.router.route(exchange, routing_keys, headers, content, past)
        ]

    def publish_here(self, queue: Queue, batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Publish a batch to a queue here. Returns: the indexes of the messages that it refused."""
        return self.intake.publish_here(queue, batch, waiter)

    def sample_memory(self, used_bytes: int) -> None:
        """Note how much memory the node uses, and page out what is too much."""
        if self.pager is not None:
            self.pager.sample(used_bytes, self.local_queues)
            if self.pager.has_work:
                self.wake()

    def dead_letter(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        """Publish messages that left the queue to its dead-letter exchange, if it has one; then the queue forgets
        them.
        """
        if self.meter is not None:
            self.meter.died(queue, len(run), reason)
        self.dead_letters.add(queue, run, reason, now)

    def due_room(self, queue: Queue) -> int:
        """Return how many messages that are due may be given to `due` now; with none, the queue is touched later."""
        return self.delayed.room(queue)

    def due(self, queue: Queue, run: Run, now: float) -> None:
        """Publish messages that are due through the exchange for which the queue kept them; then it forgets them."""
        self.delayed.add(queue, run)

    # --- direct replies ---

    @property
    def incarnation(self) -> int:
        """The incarnation of this node in its cluster; 0 without one."""
        member = self.catalogue.member(self.settings.node_name)
        return 0 if member is None else member.incarnation

    def reply(self, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to the channel that waits for replies under this name, here or on another node."""
        requester = self.reply_consumers.find(name)
        if requester is not None:
            requester.channel.deliver_reply(requester, envelope, content)
        elif self.peers is not None and (node := self._node_of_requester(name)) is not None:
            self.peers.reply(node, name, envelope, content)

    def has_requester(self, name: str) -> Asked[bool]:
        """Ask whether a channel waits for direct replies under this name."""
        if self.reply_consumers.find(name) is not None:
            return at_once(True)
        node = self._node_of_requester(name)
        if self.peers is None or node is None:
            return at_once(False)
        return self.peers.has_requester(node, name)

    def _node_of_requester(self, name: str) -> str | None:
        """Return the other node that made a reply name, if it is up."""
        incarnation = incarnation_of(name) if is_reply_name(name) else 0
        if not incarnation or incarnation == self.incarnation:
            return None
        members = self.catalogue.members.values()
        return next(
            (member.name for member in members if member.is_up and member.incarnation == incarnation), None
        )

    # --- queues ---

    def live_queue(self, vhost: str, name: str) -> LiveQueue:
        """Return the live queue; ProtocolError 404 if there is none, or none within reach (amqp-behaviour §9.1)."""
        queue = self.vhosts[vhost].queues.get(name)
        if queue is None:
            record = self.catalogue.queue(vhost, name)
            raise not_found("queue", name, vhost) if record is None else home_is_down(record)
        return queue

    @property
    def local_queues(self) -> Iterator[Queue]:
        """Yield the queues that live on this node."""
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if isinstance(queue, Queue):
                    yield queue

    def is_here(self, record: QueueRecord) -> bool:
        """Return True if a queue lives on this node."""
        return record.home in ("", self.settings.node_name)

    def is_within_reach(self, record: QueueRecord) -> bool:
        """Return True if this node has a live queue of it: the node where it lives is up, or it is mirrored."""
        if self.is_here(record) or record.view is not None:
            return True
        member = self.catalogue.member(record.home)
        return member is not None and member.is_up

    def duplicates(self, queue: Queue, count: int) -> None:
        """Count messages that a queue has dropped as duplicates."""
        self.counters.messages_duplicate += count

    def unreadable(self, queue: Queue, reason: str) -> None:
        """Register a queue with messages that the disk cannot read."""
        self.damages.found(queue, reason)

    def queue_unused(self, queue: Queue, now: float) -> None:
        """Delete the queue: its last consumer left an auto-delete queue, or its time without use is over."""
        self._deletions.add(queue.record)

    def await_deletions(self, on_done: Callable[[Any], None]) -> None:
        """Call back when all queues are gone that this broker has begun to delete by itself."""
        self._deletions.await_all(on_done)

    # --- following the catalogue ---

    def react(self, changes: Sequence[events.Event]) -> None:
        """Follow the changes of a command."""
        self.following.react(changes)

    def open_storage(self, record: QueueRecord, copy: int) -> QueueStorage:
        """Return the disk side of a queue here.   copy: as in `RingMember`."""
        return self.storage.open(replace(record, uid=stored_uid(record.uid, copy)) if copy else record)

    def make_queue(self, record: QueueRecord, storage: QueueStorage) -> Queue:
        """Return an empty queue of this node."""
        queue = new_queue(record, self.queue_settings(record), self, storage, self.meter)
        if queue.settings.falls_back:
            self.observer.letters_fall_back(record)
        if queue.settings.hold_until_header is not None:
            holding.ensure(self, queue)
        return queue

    def replace(self, record: QueueRecord, live: LiveQueue) -> None:
        """Replace the live queue of a mirrored queue, which has moved: `live` takes over publishes, questions and
        consumers.

        Routes that lead to the queue are resolved anew.
        """
        queues = self.vhosts[record.vhost].queues
        former, queues[record.name] = queues[record.name], live
        self.catalogue.version += 1
        move(former, live)

    def adopt(self, queue: Queue, handoff: Handoff) -> None:
        """Give the queue the publishes, consumers and questions that clients of this node had at earlier masters."""
        publish_again(self, queue, handoff)
        attach(queue, handoff.consumers, self.now)
        for ask in handoff.questions:
            ask(queue)
        for publisher in handoff.awaiting:
            publisher.peer_relieved()

    def placed(self, command: DeclareQueue) -> DeclareQueue:
        """Return the declaration of a queue with its home and its mirrors: see `Placement.placed`."""
        settings = self.settings
        here, locator = settings.node_name, settings.queue_master_locator
        return Placement(self.catalogue, here, locator, self.stuck_disks, self.entropy).placed(command)

    def with_waiting_queue(self, command: DeclareExchange) -> Command[ExchangeDeclared]:
        """Return the declaration of an exchange, made here: with the queue that belongs to it, on several nodes."""
        name = exchange_queue(command.type, command.name)
        if name is None:
            return command
        arguments, uid = queue_arguments(command.type, command.arguments), self.entropy(UID_BYTES).hex()
        waiting = DeclareQueue(
            command.vhost, name, uid, durable=command.durable, arguments=arguments, type="quorum"
        )
        return DeclareDelayed(command.vhost, command, self.placed(waiting))

    def holding(self, vhost: str, header: str) -> Command[ExchangeDeclared] | None:
        """Return the declaration of the exchange that keeps messages until the time in a header; None: it exists."""
        return holding.declaration(self, vhost, header)

    def queue_settings(self, record: QueueRecord) -> QueueSettings:
        """Return the settings of a queue by its arguments and policies."""
        effective = self.catalogue.effective_policy(record)
        if record.arguments:
            return queue_settings(record.arguments, effective)
        policy, settings = self._plain_settings
        if effective is not policy:
            settings = queue_settings(record.arguments, effective)
            self._plain_settings = effective, settings
        return settings
