"""The exchanges, queues, bindings and policies of one vhost.

The part of the catalogue that grows with use: tens of thousands of queues and bindings. Look-ups are one
dictionary look-up; declaring costs the policies, deleting costs the object's own bindings. Each change
appends what it did to the catalogue's events.

Source: amqp-behaviour §3.2 (pre-declared exchanges), §3.4, §3.5 (auto-delete exchanges), §3.14 (bindings).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue.binding_key import BindingKey, binding_key
from node.catalogue.commands import (
    Bind,
    DeclareDelayed,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    ExchangeDeclared,
    QueueDeclared,
    Refused,
    RestoreQueue,
    Trim,
    Unbind,
)
from node.catalogue.events import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeCreated,
    ExchangeDeleted,
    ParameterChanged,
    PolicyChanged,
    QueueCreated,
    QueueDeleted,
    ViewChanged,
)
from node.catalogue.exchange_queues import check_exchange_arguments, exchange_queue
from node.catalogue.mirrors.views import View
from node.catalogue.names import missing, resource
from node.catalogue.parameters import OPERATOR_POLICY, POLICY
from node.catalogue.patterns import matches
from node.catalogue.policy import NO_POLICY, EffectivePolicy, PolicySet
from node.catalogue.records import (
    DEFAULT_EXCHANGE,
    EXCHANGE_TYPES,
    Binding,
    Exchange,
    Json,
    Policy,
    QueueRecord,
    ResourceKind,
    implicit_binding,
)

_PREDECLARED: Final = (
    (DEFAULT_EXCHANGE, "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.topic", "topic", False),
    ("amq.rabbitmq.trace", "topic", True),
)
"""The exchanges of a new vhost: name, type, internal (§3.2)."""

QUEUE_COST: Final = 10
"""The cost for all nodes to delete a queue, in bindings."""


class Topology:
    """The exchanges, queues, bindings and policies of one vhost, with the handlers of the commands that change them.

    events: the catalogue's list of events, to which each change is appended.
    made_by: the user who made the vhost, and its exchanges with it; empty: no user.
    exchange_types: those that may be declared; the catalogue changes the set as plug-ins come and go.
    """

    def __init__(
        self,
        vhost: str,
        events: list[Event],
        made_by: str = "",
        exchange_types: Collection[str] = EXCHANGE_TYPES,
    ) -> None:
        self._exchange_types = exchange_types
        self.queues: dict[str, QueueRecord] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.policies = PolicySet()
        self.binding_count = 0
        """The number of explicit bindings."""
        self._vhost = vhost
        self._events = events
        self._from: dict[str, dict[BindingKey, Binding]] = {}
        self._to: dict[tuple[ResourceKind, str], dict[BindingKey, Binding]] = {}
        self._effective: dict[tuple[ResourceKind, str], EffectivePolicy] = {}
        """The policies of those objects that a policy applies to."""
        for name, type_, internal in _PREDECLARED:
            exchange = Exchange(vhost, name, type_, durable=True, internal=internal, declared_by=made_by)
            self._add_exchange(exchange)

    # --- look-ups -----------------------------------------------------------------------------------------

    def bindings_from(self, exchange: str) -> Collection[Binding]:
        """The explicit bindings that leave the exchange, in the order in which they were made."""
        return self._from.get(exchange, {}).values()

    def bindings_to(self, kind: ResourceKind, name: str) -> Collection[Binding]:
        """The explicit bindings that lead to the queue or exchange, in the order in which they were made."""
        return self._to.get((kind, name), {}).values()

    def bindings(self) -> Iterator[Binding]:
        """All bindings, first the implicit one of each queue (§3.14)."""
        for queue in self.queues.values():
            yield implicit_binding(queue)
        for bindings in self._from.values():
            yield from bindings.values()

    def effective_policy(self, kind: ResourceKind, name: str) -> EffectivePolicy:
        """Return the policies that apply to an object that exists."""
        return self._effective.get((kind, name), NO_POLICY)

    def queue_policies(self) -> dict[str, EffectivePolicy]:
        """Return the effective policies by queue name, of those queues that a policy applies to."""
        return {name: effective for (kind, name), effective in self._effective.items() if kind == "queue"}

    # --- exchanges and queues -----------------------------------------------------------------------------

    def declare_exchange(self, command: DeclareExchange) -> ExchangeDeclared | Refused:
        """Create the exchange unless the name is taken; return the exchange of that name.

        Refused (503): unknown type. (406): arguments that an exchange of this type cannot have.
        """
        existing = self.exchanges.get(command.name)
        if existing is not None:
            return ExchangeDeclared(existing, created=False)
        if command.type not in self._exchange_types:
            return Refused(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{command.type}'")
        try:
            check_exchange_arguments(command.type, command.arguments)
        except ProtocolError as error:
            return Refused(error.code, error.explanation)
        exchange = Exchange(
            command.vhost,
            command.name,
            command.type,
            command.durable,
            command.auto_delete,
            command.internal,
            command.arguments,
            command.declared_by,
        )
        self._add_exchange(exchange)
        return ExchangeDeclared(exchange, created=True)

    def declare_delayed(
        self, command: DeclareDelayed, first_view: Callable[[DeclareQueue, EffectivePolicy], View | None]
    ) -> ExchangeDeclared | Refused:
        """Create an exchange with the queue that belongs to it; see `declare_exchange`."""
        declared = self.declare_exchange(command.exchange)
        if isinstance(declared, ExchangeDeclared) and declared.created:
            self.declare_queue(command.waiting, first_view)
        return declared

    def delete_exchange(self, command: DeleteExchange) -> Exchange | Refused | None:
        """Delete the exchange and its bindings; return it, or None when there is none.

        Refused (406) when it must be unused and a binding leaves it. Auto-delete exchanges upstream may be deleted too.
        """
        exchange = self.exchanges.get(command.name)
        if exchange is None:
            return None
        if command.if_unused and self._from.get(exchange.name):
            text = f"{resource('exchange', exchange.name, self._vhost)} in use"
            return Refused(ReplyCode.PRECONDITION_FAILED, text)
        self._delete_unused(self._remove_exchange(exchange))
        return exchange

    def declare_queue(
        self, command: DeclareQueue, first_view: Callable[[DeclareQueue, EffectivePolicy], View | None]
    ) -> QueueDeclared:
        """Create the queue unless the name is taken; return the queue of that name.

        The limit of the vhost has been checked.   first_view: gives the view of a new queue, None for no mirrors.
        """
        existing = self.queues.get(command.name)
        if existing is not None:
            return QueueDeclared(existing, created=False)
        effective = self.policies.match("queue", command.name, command.type)
        view = first_view(command, effective)
        queue = QueueRecord(
            command.vhost,
            command.name,
            command.uid,
            command.durable,
            command.auto_delete,
            command.exclusive_owner,
            command.arguments,
            command.type,
            command.home if view is None else view.master_node or command.home,
            view,
            0 if view is None else view.version,
        )
        self._add_queue(queue, effective)
        return QueueDeclared(queue, created=True)

    def restore_queue(self, command: RestoreQueue) -> None:
        """Put back a queue as a snapshot has it, instead of the one of that name if there is one."""
        queue = command.queue
        self.delete_queue(DeleteQueue(self._vhost, queue.name))
        self._add_queue(queue, self.policies.match("queue", queue.name, queue.type))

    def delete_queue(self, command: DeleteQueue) -> QueueRecord | None:
        """Delete the queue, if it is the incarnation that is meant, and its bindings; return it, or None."""
        queue = self.queues.get(command.name)
        if queue is None or command.uid not in (None, queue.uid):
            return None
        sources = self._remove_bindings_to("queue", queue.name)
        del self.queues[queue.name]
        self._effective.pop(("queue", queue.name), None)
        self._events.append(QueueDeleted(queue))
        self._delete_unused(sources)
        return queue

    @property
    def size(self) -> int:
        """The cost to delete all queues, in bindings, as `Trim` counts."""
        return self.binding_count + QUEUE_COST * len(self.queues)

    def trim(self, command: Trim) -> bool:
        """Remove some bindings or queues of an object that is to be deleted; return whether there are more."""
        if command.kind == "vhost":
            return self._trim_queues(command.limit)
        if command.kind == "exchange":
            left = command.limit - self._trim_from(command.name, command.limit)
            self._trim_to("exchange", command.name, left)
            return bool(self._from.get(command.name)) or ("exchange", command.name) in self._to
        queue = self.queues.get(command.name)
        if queue is None or command.uid not in (None, queue.uid):
            return False
        self._trim_to("queue", command.name, command.limit)
        return ("queue", command.name) in self._to

    def _trim_queues(self, limit: int) -> bool:
        while self.queues and limit > 0:
            queue = next(iter(self.queues.values()))
            limit -= self._trim_to("queue", queue.name, limit) + QUEUE_COST
            if ("queue", queue.name) not in self._to:
                self.delete_queue(DeleteQueue(self._vhost, queue.name, queue.uid))
        return bool(self.queues)

    def _trim_from(self, exchange: str, limit: int) -> int:
        keys = list(islice(self._from.get(exchange, ()), limit))
        for key in keys:
            self._remove_binding(key)
        return len(keys)

    def _trim_to(self, kind: ResourceKind, name: str, limit: int) -> int:
        keys = list(islice(self._to.get((kind, name), ()), limit))
        for key in keys:
            self._remove_binding(key)
        self._delete_unused([source for source, *_ in keys])
        return len(keys)

    def delete_queues_of(self, home: str, *, transient_only: bool) -> None:
        """Delete the unmirrored queues of a forgotten node, or the transient ones of a node that is down (§9.1)."""
        lost = [
            queue
            for queue in self.queues.values()
            if queue.home == home and queue.view is None and not (transient_only and queue.durable)
        ]
        for queue in lost:
            self.delete_queue(DeleteQueue(self._vhost, queue.name, queue.uid))

    def delete_transient_exchanges(self) -> None:
        """Delete the transient exchanges: all nodes were down at once, so none has kept them (§7.6)."""
        for exchange in [exchange for exchange in self.exchanges.values() if not exchange.durable]:
            if exchange.name in self.exchanges:
                self._delete_unused(self._remove_exchange(exchange))

    def delete_all(self) -> None:
        """Report each queue and exchange as deleted: the vhost is being deleted."""
        self._events.extend(map(QueueDeleted, self.queues.values()))
        self._events.extend(map(ExchangeDeleted, self.exchanges.values()))

    # --- bindings -----------------------------------------------------------------------------------------

    def bind(self, command: Bind) -> bool | Refused:
        """Add the binding; return False when it was there.

        Refused (404) when an end is missing, the source looked for first; (403) for the default exchange.
        """
        destinations = self.queues if command.destination_kind == "queue" else self.exchanges
        if command.source not in self.exchanges:
            return Refused(ReplyCode.NOT_FOUND, missing("exchange", command.source, self._vhost))
        if command.destination not in destinations:
            text = missing(command.destination_kind, command.destination, self._vhost)
            return Refused(ReplyCode.NOT_FOUND, text)
        if DEFAULT_EXCHANGE in (command.source, command.destination):
            text = "operation not permitted on the default exchange"
            return Refused(ReplyCode.ACCESS_REFUSED, text)
        key = _key(command)
        bindings = self._from.setdefault(command.source, {})
        if key in bindings:
            return False
        binding = Binding(
            command.vhost,
            command.source,
            command.destination_kind,
            command.destination,
            command.routing_key,
            command.arguments,
        )
        bindings[key] = binding
        self.binding_count += 1
        self._to.setdefault((command.destination_kind, command.destination), {})[key] = binding
        self._events.append(BindingAdded(binding))
        return True

    def unbind(self, command: Unbind) -> bool:
        """Remove the binding; return False when there is none.

        An auto-delete exchange without another one is deleted.
        """
        key = _key(command)
        if key not in self._from.get(command.source, {}):
            return False
        self._remove_binding(key)
        self._delete_unused([command.source])
        return True

    def _remove_binding(self, key: BindingKey) -> None:
        source, kind, destination = key[:3]
        binding = self._from[source].pop(key)
        self.binding_count -= 1
        if not self._from[source]:
            del self._from[source]
        del self._to[kind, destination][key]
        if not self._to[kind, destination]:
            del self._to[kind, destination]
        self._events.append(BindingRemoved(binding))

    def _remove_bindings_to(self, kind: ResourceKind, name: str) -> list[str]:
        """Remove the bindings to an object; gives the exchange that each of them left."""
        keys = list(self._to.get((kind, name), ()))
        for key in keys:
            self._remove_binding(key)
        return [source for source, *_ in keys]

    def _add_queue(self, queue: QueueRecord, effective: EffectivePolicy) -> None:
        self.queues[queue.name] = queue
        self._set_effective("queue", queue.name, effective)
        self._events.append(QueueCreated(queue))

    def _add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self._set_effective("exchange", exchange.name, self.policies.match("exchange", exchange.name))
        self._events.append(ExchangeCreated(exchange))

    def _remove_exchange(self, exchange: Exchange) -> list[str]:
        """Remove the exchange and its bindings both ways; gives the exchanges that lost one."""
        for key in list(self._from.get(exchange.name, ())):
            self._remove_binding(key)
        sources = self._remove_bindings_to("exchange", exchange.name)
        if (own := exchange_queue(exchange.type, exchange.name)) is not None:
            self.delete_queue(DeleteQueue(self._vhost, own))
        del self.exchanges[exchange.name]
        self._effective.pop(("exchange", exchange.name), None)
        self._events.append(ExchangeDeleted(exchange))
        return sources

    def _delete_unused(self, sources: Iterable[str]) -> None:
        """Delete the auto-delete exchanges that lost their last binding, and so on upstream (§3.5)."""
        pending = deque(sources)
        while pending:
            exchange = self.exchanges.get(pending.popleft())
            if exchange is not None and exchange.auto_delete and exchange.name not in self._from:
                pending.extend(self._remove_exchange(exchange))

    # --- policies -----------------------------------------------------------------------------------------

    def put_policy(self, policy: Policy, *, operator: bool) -> bool:
        """Add or replace a policy that has been validated; gives True when new."""
        before = self.policies.policy(policy.name, operator=operator)
        self.policies.put(policy, operator=operator)
        self._policy_changed(policy.name, (before, policy) if before != policy else (), operator=operator)
        return before is None

    def clear_policy(self, name: str, *, operator: bool) -> bool:
        """Remove a policy; gives False when there is none."""
        before = self.policies.policy(name, operator=operator)
        if before is None:
            return False
        self.policies.remove(name, operator=operator)
        self._policy_changed(name, [before], operator=operator)
        return True

    def _policy_changed(self, name: str, versions: Iterable[Policy | None], *, operator: bool) -> None:
        """Report a changed policy and match anew its objects.   versions: of the policy, before and after."""
        self._events.append(ParameterChanged(self._vhost, OPERATOR_POLICY if operator else POLICY, name))
        for_whom = [version.pattern for version in versions if version is not None]
        if for_whom:
            self._match_all(for_whom)

    def _match_all(self, patterns: Sequence[str]) -> None:
        """Find anew the policy of each object that matches a pattern, and report the objects for which it changed.

        An object that matches neither the old nor the new version of a policy is not concerned by the change.
        """

        def is_concerned(name: str) -> bool:
            return any(matches(pattern, name) for pattern in patterns)

        queues = tuple(
            queue.name
            for queue in list(self.queues.values())
            if is_concerned(queue.name) and self._match_queue(queue)
        )
        exchanges = tuple(
            name
            for name in self.exchanges
            if is_concerned(name)
            and self._set_effective("exchange", name, self.policies.match("exchange", name))
        )
        if queues or exchanges:
            self._events.append(PolicyChanged(self._vhost, queues, exchanges))

    def _set_effective(self, kind: ResourceKind, name: str, effective: EffectivePolicy) -> bool:
        """Store the policies that apply to an object; return whether they differ from the former ones."""
        if effective == self.effective_policy(kind, name):
            return False
        if effective == NO_POLICY:
            del self._effective[kind, name]
        else:
            self._effective[kind, name] = effective
        return True

    def _match_queue(self, queue: QueueRecord) -> bool:
        """Find anew the policies of a queue; return whether they differ from the former ones."""
        before = self.effective_policy("queue", queue.name)
        after = self.policies.match("queue", queue.name, queue.type)
        if queue.placement and _copies(after) != _copies(before):
            # What a plan wanted was meant for the policy that there was.
            self.queues[queue.name] = replace(queue, placement=())
            self._events.append(ViewChanged(queue, self.queues[queue.name]))
        return self._set_effective("queue", queue.name, after)


def _copies(effective: EffectivePolicy) -> tuple[Json, Json]:
    """Return the part of the policies that says how many copies a queue has, or where."""
    return effective.definition.get("ha-mode"), effective.definition.get("ha-params")


def _key(command: Bind | Unbind) -> BindingKey:
    return binding_key(
        command.source, command.destination_kind, command.destination, command.routing_key, command.arguments
    )
