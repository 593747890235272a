"""The durable part of the catalogue: what a restart keeps, and how commands change it.

Kept are plug-ins, vhosts, users, permissions, policies, parameters and limits; of a topology the durable exchanges, the
durable queues that are not exclusive, and the bindings with both ends kept. A log of the commands that changed this
part, applied to an empty catalogue, gives it again.

Most commands can be logged as they are. Those about exchanges, queues and bindings cannot: what cascades from
them depends on transient bindings, which are not there when the log is read. They are logged by what they did.
Source: amqp-behaviour §3.5, §7.6.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from node.catalogue import commands
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import (
    Bind,
    Command,
    DeclareDelayed,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Refused,
    Trim,
    Unbind,
)
from node.catalogue.events import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeCreated,
    ExchangeDeleted,
    QueueCreated,
    QueueDeleted,
)
from node.catalogue.records import Binding, Exchange, QueueRecord, ResourceKind

_OF_TOPOLOGY: Final = (
    DeclareExchange,
    DeclareDelayed,
    DeleteExchange,
    DeclareQueue,
    DeleteQueue,
    Trim,
    Bind,
    Unbind,
)

_PASSING: Final = (commands.TakePlanLock, commands.ReleasePlanLock, commands.TakePlanStep)
"""Commands about moves of queues between nodes: a node without peers has nothing of them to keep."""

_MAY_BE_IDLE: Final = (
    commands.DeleteVhost,
    commands.DeleteUser,
    commands.ClearPermission,
    commands.ClearTopicPermission,
    commands.ClearPolicy,
    commands.ClearParameter,
    commands.ClearGlobalParameter,
    commands.EnablePlugin,
    commands.DisablePlugin,
)
"""Commands that give False when they changed nothing: most had nothing to remove."""


def is_kept(record: Exchange | QueueRecord) -> bool:
    """True if an exchange or a queue outlives a restart: an exclusive queue goes with its connection."""
    return record.durable and (isinstance(record, Exchange) or record.exclusive_owner is None)


def durable_changes(
    command: Command[Any], result: object, events: Sequence[Event], catalogue: Catalogue
) -> list[Command[Any]]:
    """Return the commands that change the durable part alone as a command changed the whole; none if it did not.

    result, events: what applying it gave.   catalogue: as it is just after that.
    """
    if isinstance(result, Refused) or isinstance(command, _PASSING):
        return []
    if not isinstance(command, _OF_TOPOLOGY):
        # Not all of these report an event: a policy may apply to nothing yet.
        return [] if result is False and isinstance(command, _MAY_BE_IDLE) else [command]
    ends = _Ends(events, catalogue)
    changes = [change for event in events for change in _changes(event, ends)]
    return changes + _undo_cascades(events, ends, catalogue)


def declaration(record: Exchange | QueueRecord) -> DeclareExchange | DeclareQueue:
    """The command that makes an exchange or a queue as it is."""
    if isinstance(record, Exchange):
        return DeclareExchange(
            record.vhost,
            record.name,
            record.type,
            record.durable,
            record.auto_delete,
            record.internal,
            record.arguments,
            record.declared_by,
        )
    return DeclareQueue(
        record.vhost,
        record.name,
        record.uid,
        record.durable,
        record.auto_delete,
        record.exclusive_owner,
        record.arguments,
        record.type,
        record.home,
    )


def bind(binding: Binding) -> Bind:
    """The command that makes a binding."""
    return Bind(
        binding.vhost,
        binding.source,
        binding.destination_kind,
        binding.destination,
        binding.routing_key,
        binding.arguments,
    )


class _Ends:
    """The exchanges and queues at the ends of bindings: those that exist, and those that the command deleted."""

    def __init__(self, events: Iterable[Event], catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._deleted: dict[tuple[ResourceKind, str], Exchange | QueueRecord] = {}
        for event in events:
            if isinstance(event, ExchangeDeleted):
                self._deleted["exchange", event.exchange.name] = event.exchange
            elif isinstance(event, QueueDeleted):
                self._deleted["queue", event.queue.name] = event.queue

    def has(self, vhost: str, kind: ResourceKind, name: str) -> bool:
        """True if the exchange or queue is durable and exists, or existed until this command."""
        find = self._catalogue.exchange if kind == "exchange" else self._catalogue.queue
        record = self._deleted.get((kind, name)) or find(vhost, name)
        return record is not None and is_kept(record)

    def is_kept(self, binding: Binding) -> bool:
        """True if both ends of the binding are durable and exist, or existed until this command."""
        vhost = binding.vhost
        return self.has(vhost, "exchange", binding.source) and self.has(
            vhost, binding.destination_kind, binding.destination
        )

    def went_along(self, binding: Binding) -> bool:
        """True if the binding was removed because the command deleted one of its ends."""
        return ("exchange", binding.source) in self._deleted or (
            binding.destination_kind,
            binding.destination,
        ) in self._deleted


def _changes(event: Event, ends: _Ends) -> Iterator[Command[Any]]:
    """Yield the commands that do to the durable part what the event says of the whole."""
    match event:
        case ExchangeCreated(exchange) if is_kept(exchange):
            yield declaration(exchange)
        case ExchangeDeleted(exchange) if is_kept(exchange):
            yield DeleteExchange(exchange.vhost, exchange.name)
        case QueueCreated(queue) if is_kept(queue):
            yield declaration(queue)
        case QueueDeleted(queue) if is_kept(queue):
            yield DeleteQueue(queue.vhost, queue.name, queue.uid)
        case BindingAdded(binding) if ends.is_kept(binding):
            yield bind(binding)
        case BindingRemoved(binding) if ends.is_kept(binding) and not ends.went_along(binding):
            yield Unbind(
                binding.vhost,
                binding.source,
                binding.destination_kind,
                binding.destination,
                binding.routing_key,
                binding.arguments,
            )


def _undo_cascades(events: Iterable[Event], ends: _Ends, catalogue: Catalogue) -> list[Command[Any]]:
    """Return commands that declare anew the auto-delete exchanges that the durable part alone would lose.

    These have lost their last durable binding and live by transient ones. Upstream of them the same holds for exchanges
    with no other durable binding than to them.
    """
    revived: dict[str, Exchange] = {}
    lost = [
        event.binding for event in events if isinstance(event, BindingRemoved) and ends.is_kept(event.binding)
    ]
    bindings: list[Binding] = []
    while lost:
        binding = lost.pop()
        exchange = catalogue.exchange(binding.vhost, binding.source)
        if exchange is None or not exchange.auto_delete or exchange.name in revived:
            continue
        if all(
            (each.destination_kind == "exchange" and each.destination in revived) or not ends.is_kept(each)
            for each in catalogue.bindings_from(exchange.vhost, exchange.name)
        ):
            revived[exchange.name] = exchange
            upstream = [
                each
                for each in catalogue.bindings_to(exchange.vhost, "exchange", exchange.name)
                if ends.is_kept(each)
            ]
            bindings += upstream
            lost += upstream
    return [*map(declaration, revived.values()), *map(bind, bindings)]
