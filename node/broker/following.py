"""The live vhosts, routes and queues of a node follow the catalogue: each event opens, re-tunes or closes some.

catalogue ─ events ─► Following ─► vhosts, routers, queues          turn: what was too much for one step
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatchmethod
from itertools import islice
from typing import TYPE_CHECKING, Final

from node.broker import holding
from node.broker.histories import replay_history
from node.broker.tracing import tracer_of
from node.catalogue import events
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.policy import alternate_exchange
from node.catalogue.records import Binding, Exchange, QueueRecord
from node.client.vhost import LiveVhost
from node.queue.kinds import apply_settings

if TYPE_CHECKING:
    from node.broker.broker import Broker

SETTINGS_AT_ONCE: Final = 500
"""The limit of live queues whose settings change at once with a policy, and in each turn after that: some 5 ms."""


class Following:
    """Makes the live objects of one broker, `Broker.vhosts`, follow the catalogue.

    Only settings may come later, when a policy concerns more than `SETTINGS_AT_ONCE` queues: within
    queues / `SETTINGS_AT_ONCE` turns. A queue that is opened meanwhile has the new ones from the start.
    """

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self._exclusive: dict[str, dict[str, QueueRecord]] = {}  # by owner and uid
        self._due: dict[tuple[str, str], None] = {}
        """The vhosts and names of queues whose settings have changed: each queue once."""

    def react(self, changes: Sequence[events.Event]) -> None:
        """Follow the changes of a command, and report each to the broker's observer."""
        follow = self._follow  # made anew at each look
        changed = self.broker.observer.changed
        for change in changes:
            follow(change)
            changed(change)

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(self._due)

    def turn(self) -> None:
        """Give the next queues whose settings have changed their settings."""
        names = list(islice(self._due, SETTINGS_AT_ONCE))
        for each in names:
            del self._due[each]
        self._apply_settings(names)

    def exclusive_queues(self, owner: str) -> list[QueueRecord]:
        """Return the queues that belong to a connection of this id."""
        return list(self._exclusive.get(owner, {}).values())

    @singledispatchmethod
    def _follow(self, change: events.Event) -> None:
        """Ignore other changes: no live object depends on them."""

    @_follow.register
    def _(self, change: events.PluginEnabled) -> None:
        self.broker.exchange_types.enable(change.name, change.exchange_types)

    @_follow.register
    def _(self, change: events.PluginDisabled) -> None:
        self.broker.exchange_types.disable(change.name)

    @_follow.register
    def _(self, change: events.VhostCreated) -> None:
        self.broker.vhosts[change.vhost.name] = LiveVhost(
            change.vhost.name, tracer_of(self.broker, change.vhost), self.broker.exchange_types
        )

    @_follow.register
    def _(self, change: events.VhostUpdated) -> None:
        self.broker.vhosts[change.vhost.name].tracer = tracer_of(self.broker, change.vhost)

    @_follow.register
    def _(self, change: events.VhostDeleted) -> None:
        self.broker.close_connections(
            f"vhost '{change.name}' is deleted", lambda connection: connection.vhost == change.name
        )
        for counters in self.broker.vhosts.pop(change.name).exchange_counters.values():
            self.broker.counters.ended_exchanges.add(counters)

    @_follow.register
    def _(self, change: events.UserDeleted) -> None:
        self.broker.close_connections(
            f"user '{change.name}' is deleted", lambda connection: connection.user_name == change.name
        )

    @_follow.register
    def _(self, change: events.ExchangeCreated) -> None:
        record = change.exchange
        self.broker.vhosts[record.vhost].router.add_exchange(record, self._alternate(record))

    @_follow.register
    def _(self, change: events.ExchangeDeleted) -> None:
        live = self.broker.vhosts[change.exchange.vhost]
        self.broker.counters.ended_exchanges.add(live.remove_exchange(change.exchange.name))

    @_follow.register
    def _(self, change: events.QueueCreated) -> None:
        record = change.queue
        if self.broker.is_here(record):
            self.broker.counters.queue_created += 1
        if self.broker.is_within_reach(record):
            self._open_queue(record)
            if self.broker.peers is not None:
                self.broker.wake()  # another node that knew the queue earlier may have sent frames for it
        if self.broker.mirrors is not None and record.view is None:
            self.broker.mirrors.settings_changed(record)
        if record.type == "quorum" and not is_exchange_queue(record.name):
            self.broker.observer.quorum_requested(record)
        if record.exclusive_owner is not None:
            self._exclusive.setdefault(record.exclusive_owner, {})[record.uid] = record

    @_follow.register
    def _(self, change: events.QueueDeleted) -> None:
        record = change.queue
        if self.broker.is_here(record):
            self.broker.counters.queue_deleted += 1
        self._close_queue(record)
        if self.broker.mirrors is not None:
            self.broker.mirrors.close(record)
        if record.exclusive_owner is not None:
            owned = self._exclusive[record.exclusive_owner]
            del owned[record.uid]
            if not owned:
                del self._exclusive[record.exclusive_owner]

    @_follow.register
    def _(self, change: events.BindingAdded) -> None:
        live = self.broker.vhosts[change.binding.vhost]
        if live.is_routable(change.binding):
            live.router.bind(change.binding)
        replay_history(self.broker, change.binding)

    @_follow.register
    def _(self, change: events.BindingRemoved) -> None:
        live = self.broker.vhosts[change.binding.vhost]
        if live.is_routable(change.binding):
            live.router.unbind(change.binding)

    @_follow.register
    def _(self, change: events.ViewChanged) -> None:
        if self.broker.mirrors is not None:
            self.broker.mirrors.see(change.before, change.after, change.cause)

    @_follow.register
    def _(self, change: events.MemberPut) -> None:
        if self.broker.mirrors is not None:
            self.broker.mirrors.nodes_changed()

    @_follow.register
    def _(self, change: events.MemberUp) -> None:
        node = change.member.name
        if self.broker.mirrors is not None:
            self.broker.mirrors.nodes_changed()
        if node == self.broker.settings.node_name or self.broker.peers is None:
            return
        self.broker.peers.node_up(node)
        for record in self._queues_of(node):
            self._open_queue(record)
            live = self.broker.vhosts[record.vhost]
            for binding in self._bindings_by_reach(record):
                live.router.bind(binding)

    @_follow.register
    def _(self, change: events.MemberDown) -> None:
        node = change.member.name
        if self.broker.mirrors is not None:
            self.broker.mirrors.nodes_changed()
        if node == self.broker.settings.node_name or self.broker.peers is None:
            return
        self.broker.peers.node_down(node)
        for record in self._queues_of(node):
            live = self.broker.vhosts[record.vhost]
            for binding in self._bindings_by_reach(record):
                live.router.unbind(binding)
            self._close_queue(record)

    def _bindings_by_reach(self, queue: QueueRecord) -> Iterator[Binding]:
        """Yield the bindings to a queue that its router has only while the queue is within reach."""
        router = self.broker.vhosts[queue.vhost].router
        for binding in self.broker.catalogue.bindings_to(queue.vhost, "queue", queue.name):
            if not router.keeps_all(binding.source):
                yield binding

    def _queues_of(self, node: str) -> list[QueueRecord]:
        """Return the unmirrored queues that live on another node; transient ones have events of their own."""
        return [
            record
            for vhost in self.broker.catalogue.vhosts()
            for record in self.broker.catalogue.queues(vhost.name)
            if record.home == node and record.view is None
        ]

    def _open_queue(self, record: QueueRecord) -> None:
        live = self.broker.vhosts[record.vhost]
        if record.view is not None:
            assert self.broker.mirrors is not None, record
            live.queues[record.name] = self.broker.mirrors.open(record)
        elif self.broker.is_here(record):
            live.queues[record.name] = self.broker.make_queue(
                record, self.broker.open_storage(record, record.copy)
            )
        else:
            assert self.broker.peers is not None, record
            live.queues[record.name] = self.broker.peers.open(record, self.broker.queue_settings(record))
        live.router.add_queue(record.name)

    def _close_queue(self, record: QueueRecord) -> None:
        live = self.broker.vhosts[record.vhost]
        queue = live.queues.pop(record.name, None)
        if queue is not None:
            live.router.remove_queue(record.name)
            queue.close()

    @_follow.register
    def _(self, change: events.PolicyChanged) -> None:
        at_once = () if self._due else change.queues[:SETTINGS_AT_ONCE]
        self._apply_settings((change.vhost, name) for name in at_once)
        if len(at_once) < len(change.queues):
            self._due.update(((change.vhost, name), None) for name in change.queues[len(at_once) :])
            self.broker.wake()
        live = self.broker.vhosts[change.vhost]
        for name in change.exchanges:
            record = self.broker.catalogue.exchange(change.vhost, name)
            assert record is not None
            live.router.set_alternate(name, self._alternate(record))

    def _apply_settings(self, names: Iterable[tuple[str, str]]) -> None:
        """Give live queues the settings that they should have now.   names: of vhosts and queues, which may be gone."""
        broker = self.broker
        for vhost, name in names:
            live = broker.vhosts.get(vhost)
            queue = None if live is None else live.queues.get(name)
            if queue is not None:
                before = queue.settings
                apply_settings(queue, broker.queue_settings(queue.record), broker.now)
                if queue.settings.falls_back and queue.is_local and not before.falls_back:
                    broker.observer.letters_fall_back(queue.record)
                if queue.settings.hold_until_header != before.hold_until_header:
                    # Routes that were opened meanwhile hold nothing, or too much.
                    broker.catalogue.version += 1
                    holding.ensure(broker, queue)
                if broker.mirrors is not None:
                    broker.mirrors.settings_changed(queue.record)

    def _alternate(self, record: Exchange) -> str | None:
        return alternate_exchange(record.arguments, self.broker.catalogue.effective_policy(record))
