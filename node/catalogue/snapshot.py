"""Snapshots of a catalogue: commands that make it, or its durable part, anew, and events that make a broker live.

The records are taken when `snapshot` is called, which costs a list entry each; the commands are made as they are
asked for. So a big catalogue can be written over many turns of the loop while it changes: what changed
meanwhile is not in the snapshot.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from node.catalogue import commands
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, RestoreIncarnations, RestoreMember, RestorePlanLock, RestoreQueue
from node.catalogue.durable_part import bind, declaration, is_kept
from node.catalogue.events import (
    BindingAdded,
    Event,
    ExchangeCreated,
    PluginEnabled,
    QueueCreated,
    VhostCreated,
)
from node.catalogue.records import (
    DEFAULT_EXCHANGE,
    Binding,
    Exchange,
    Json,
    Permission,
    Policy,
    QueueRecord,
    TopicPermission,
    User,
    Vhost,
)


def snapshot(catalogue: Catalogue, *, whole: bool = False) -> Iterator[Command[Any]]:
    """Return the commands that give the durable part of an empty catalogue, in an order in which none is refused.

    whole: with all that is transient, the nodes of the cluster and the views of mirrored queues, as a node that is
        behind needs it.
    """
    accounts = _Accounts(
        list(catalogue.users()), list(catalogue.permissions()), list(catalogue.topic_permissions())
    )
    vhosts = [_taken(catalogue, vhost, whole=whole) for vhost in catalogue.vhosts()]
    # Before all exchanges, as some may be of the plug-ins' types.
    plugins = [commands.EnablePlugin(name, types) for name, types in catalogue.plugins.by_name.items()]
    rest = chain(plugins, _commands(dict(catalogue.global_parameters()), vhosts, accounts))
    if not whole:
        return rest
    members: list[Command[Any]] = [RestoreMember(member) for member in catalogue.members.values()]
    numbers = RestoreIncarnations(catalogue.next_incarnation, catalogue.member_changes)
    lock = catalogue.plan_lock
    return chain(members, [numbers], [] if lock is None else [RestorePlanLock(lock)], rest)


def everything(catalogue: Catalogue) -> Iterator[Event]:
    """Yield the events that a broker has to follow to be live with a catalogue that it does not know yet."""
    for name, types in catalogue.plugins.by_name.items():
        yield PluginEnabled(name, types)
    for vhost in catalogue.vhosts():
        yield VhostCreated(vhost)
        yield from map(ExchangeCreated, catalogue.exchanges(vhost.name))
        yield from map(QueueCreated, catalogue.queues(vhost.name))
        for exchange in catalogue.exchanges(vhost.name):
            yield from map(BindingAdded, catalogue.bindings_from(vhost.name, exchange.name))


@dataclass(frozen=True, slots=True)
class _Accounts:
    """The users and their rights, as they were when the snapshot began."""

    users: list[User]
    permissions: list[Permission]
    topic_permissions: list[TopicPermission]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a vhost, as they were when the snapshot began.

    is_whole: with all that is transient.   policies: with whether it is an operator's.
    bindings: all that leave one of these exchanges.
    """

    vhost: Vhost
    is_whole: bool
    parameters: dict[tuple[str, str], Json]
    policies: list[tuple[Policy, bool]]
    exchanges: dict[str, Exchange]
    queues: dict[str, QueueRecord]
    bindings: list[Binding] = field(default_factory=list)

    def outlives(self, binding: Binding) -> bool:
        """True if the destination of a binding is among the queues and exchanges, as its source is."""
        ends = self.queues if binding.destination_kind == "queue" else self.exchanges
        return binding.destination in ends


def _taken(catalogue: Catalogue, vhost: Vhost, *, whole: bool) -> _Contents:
    """Return the contents of a vhost, all or only the durable part."""
    name = vhost.name
    contents = _Contents(
        vhost,
        whole,
        dict(catalogue.parameters(name)),
        [(policy, False) for policy in catalogue.policies(name)]
        + [(policy, True) for policy in catalogue.policies(name, operator=True)],
        {exchange.name: exchange for exchange in catalogue.exchanges(name) if whole or is_kept(exchange)},
        {queue.name: queue for queue in catalogue.queues(name) if whole or is_kept(queue)},
    )
    for exchange in contents.exchanges:
        contents.bindings.extend(catalogue.bindings_from(name, exchange))
    return contents


def _commands(
    global_parameters: dict[str, Json], vhosts: list[_Contents], accounts: _Accounts
) -> Iterator[Command[Any]]:
    for name, value in global_parameters.items():
        yield commands.SetGlobalParameter(name, value)
    for contents in vhosts:
        vhost = contents.vhost
        yield commands.PutVhost(
            vhost.name,
            vhost.description,
            vhost.tags,
            vhost.default_queue_type,
            vhost.metadata,
            contents.exchanges[DEFAULT_EXCHANGE].declared_by,
        )
    yield from _account_commands(accounts)
    for contents in vhosts:
        yield from _content_commands(contents)


def _account_commands(accounts: _Accounts) -> Iterator[Command[Any]]:
    for user in accounts.users:
        yield commands.PutUser(user.name, user.password_hash, user.hashing_algorithm, user.tags, user.limits)
    for row in accounts.permissions:
        yield commands.SetPermission(row.vhost, row.user, row.configure, row.write, row.read)
    for topic_row in accounts.topic_permissions:
        yield commands.SetTopicPermission(
            topic_row.vhost, topic_row.user, topic_row.exchange, topic_row.write, topic_row.read
        )


def _content_commands(contents: _Contents) -> Iterator[Command[Any]]:
    """Yield the commands for the contents of a vhost.

    Policies come first, so that each object is matched once; limits last, as there may be more queues than they allow.
    """
    for policy, operator in contents.policies:
        yield commands.SetPolicy(
            policy.vhost,
            policy.name,
            policy.pattern,
            policy.definition,
            policy.priority,
            policy.apply_to,
            operator,
        )
    predeclared = _predeclared()
    yield from (
        declaration(exchange) for exchange in contents.exchanges.values() if exchange.name not in predeclared
    )
    yield from map(RestoreQueue if contents.is_whole else declaration, contents.queues.values())
    yield from map(bind, filter(contents.outlives, contents.bindings))
    for (component, name), value in contents.parameters.items():
        yield commands.SetParameter(contents.vhost.name, component, name, value)


@cache
def _predeclared() -> frozenset[str]:
    """The exchanges that come with a vhost and stay as long as it does (amqp-behaviour §3.2)."""
    catalogue = Catalogue()
    catalogue.apply(commands.PutVhost("/"))
    return frozenset(exchange.name for exchange in catalogue.exchanges("/"))
