"""The catalogue: all metadata of the broker, a deterministic state machine.

`apply` is the only way in. It reads no clock and no randomness and never raises because of a command's contents, so
nodes that apply the same commands in the same order have the same catalogue, give the same results and report
the same events. A command that cannot be applied gives `Refused` and changes nothing.

`Topology` holds what is in one vhost, `Accounts` users and permissions, `Members` the nodes of the cluster,
`EnabledPlugins` the plug-ins that all nodes use, `MirroredQueues` sees to the views of queues that have copies on
several; the vhosts themselves and the parameters are here. Records that look-ups give are not to be changed; the
collections are views that change with the next command.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.catalogue import commands
from node.catalogue.accounts import Accounts
from node.catalogue.commands import Command, Refused, StepOutcome
from node.catalogue.events import (
    Event,
    LeasesRenewed,
    MemberPut,
    ParameterChanged,
    UserPut,
    VhostCreated,
    VhostDeleted,
    VhostUpdated,
    ViewChanged,
)
from node.catalogue.limits import VhostLimits, check_vhost_queues, vhost_limits_from
from node.catalogue.members import Members
from node.catalogue.mirrors.mirrored_queues import MirroredQueues
from node.catalogue.names import missing_vhost
from node.catalogue.parameters import (
    OPERATOR_POLICY,
    POLICY,
    VHOST_LIMITS,
    VHOST_LIMITS_NAME,
    validate_parameter,
)
from node.catalogue.plan_lock import refusal, taken
from node.catalogue.plugins import EnabledPlugins
from node.catalogue.policy import NO_POLICY, EffectivePolicy
from node.catalogue.policy_validation import validate_policy
from node.catalogue.records import (
    Binding,
    ClusterMember,
    Exchange,
    Json,
    Permission,
    PlanLock,
    Policy,
    QueueRecord,
    QueueType,
    ResourceKind,
    TopicPermission,
    User,
    Vhost,
)
from node.catalogue.topology import Topology

ResultT = TypeVar("ResultT")

_ALTERS_NO_ROUTE: Final = (UserPut, VhostUpdated, ParameterChanged, MemberPut, LeasesRenewed)


class Catalogue:
    """All metadata of the broker. `version` goes up with every change that may alter routing or permissions."""

    def __init__(self) -> None:
        self.version = 0
        self._events: list[Event] = []
        self._vhosts: dict[str, Vhost] = {}
        self._topologies: dict[str, Topology] = {}
        self._accounts = Accounts(self._events)
        self._parameters: dict[str, dict[tuple[str, str], Json]] = {}
        self._global_parameters: dict[str, Json] = {}
        self._members = Members(self._events)
        self.plugins = EnabledPlugins(self._events)
        self.plan_lock: PlanLock | None = None
        """The lock of the plan that is being carried out, if any; it may have expired."""
        self._mirrored = MirroredQueues(self._topologies, self._members, self._events)
        self._handlers: Final[dict[type[Command[Any]], Callable[[Any], object]]] = {
            commands.DeclareExchange: self._in_vhost(Topology.declare_exchange),
            commands.DeclareDelayed: self._declare_delayed,
            commands.DeleteExchange: self._in_vhost(Topology.delete_exchange),
            commands.DeclareQueue: self._declare_queue,
            commands.DeleteQueue: self._in_vhost(Topology.delete_queue),
            commands.StartMirroring: self._mirrored.start,
            commands.ChangeView: self._mirrored.change,
            commands.TakePlanLock: self._take_plan_lock,
            commands.ReleasePlanLock: self._release_plan_lock,
            commands.TakePlanStep: self._take_plan_step,
            commands.Trim: self._in_vhost(Topology.trim),
            commands.Bind: self._in_vhost(Topology.bind),
            commands.Unbind: self._in_vhost(Topology.unbind),
            commands.PutVhost: self._put_vhost,
            commands.DeleteVhost: self._delete_vhost,
            commands.PutUser: self._accounts.put_user,
            commands.ChangePassword: self._accounts.change_password,
            commands.SetUserTags: self._accounts.set_tags,
            commands.DeleteUser: self._accounts.delete_user,
            commands.SetUserLimits: self._accounts.set_limits,
            commands.SetPermission: self._set_permission,
            commands.ClearPermission: self._accounts.clear_permission,
            commands.SetTopicPermission: self._set_topic_permission,
            commands.ClearTopicPermission: self._accounts.clear_topic_permission,
            commands.SetPolicy: self._set_policy,
            commands.ClearPolicy: self._clear_policy,
            commands.SetParameter: self._set_parameter,
            commands.ClearParameter: self._clear_parameter,
            commands.SetGlobalParameter: self._set_global_parameter,
            commands.ClearGlobalParameter: self._clear_global_parameter,
            commands.EnablePlugin: self._enable_plugin,
            commands.DisablePlugin: self._disable_plugin,
            commands.PutMember: self._members.put,
            commands.RemoveMember: self._remove_member,
            commands.NodeUp: self._node_up,
            commands.NodeDown: self._node_down,
            commands.SetDraining: self._members.set_draining,
            commands.RenewLeases: self._renew_leases,
            commands.RestoreQueue: self._restore_queue,
            commands.RestoreMember: self._restore_member,
            commands.RestoreIncarnations: self._restore_incarnations,
            commands.RestorePlanLock: self._restore_plan_lock,
        }

    def apply(self, command: Command[ResultT]) -> ResultT | Refused:
        """Do what the command says; its class documents the result. Never raises."""
        handler = self._handlers.get(type(command))
        if handler is None:
            # A newer node's command: every older node must refuse it alike.
            return Refused(ReplyCode.NOT_IMPLEMENTED, f"unknown command {type(command).__name__}")
        first_new = len(self._events)
        result = handler(command)
        if any(map(_alters_routes, self._events[first_new:])):
            self.version += 1
        return cast("ResultT | Refused", result)

    def take_events(self) -> list[Event]:
        """Return the changes since the last call, in order, and forget them."""
        events = self._events.copy()
        self._events.clear()
        return events

    # --- queues, exchanges, bindings ----------------------------------------------------------------------

    def queue(self, vhost: str, name: str) -> QueueRecord | None:
        """The queue of that name."""
        topology = self._topologies.get(vhost)
        return None if topology is None else topology.queues.get(name)

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """The exchange of that name."""
        topology = self._topologies.get(vhost)
        return None if topology is None else topology.exchanges.get(name)

    def queues(self, vhost: str) -> Collection[QueueRecord]:
        """All queues of the vhost."""
        topology = self._topologies.get(vhost)
        return () if topology is None else topology.queues.values()

    def exchanges(self, vhost: str) -> Collection[Exchange]:
        """All exchanges of the vhost, the default one included."""
        topology = self._topologies.get(vhost)
        return () if topology is None else topology.exchanges.values()

    def bindings_from(self, vhost: str, exchange: str) -> Collection[Binding]:
        """The explicit bindings that leave the exchange, in the order in which they were made."""
        topology = self._topologies.get(vhost)
        return () if topology is None else topology.bindings_from(exchange)

    def bindings_to(self, vhost: str, kind: ResourceKind, name: str) -> Collection[Binding]:
        """The explicit bindings that lead to the queue or exchange, in the order in which they were made."""
        topology = self._topologies.get(vhost)
        return () if topology is None else topology.bindings_to(kind, name)

    def size_of(self, vhost: str) -> int:
        """Return the cost to delete all queues of the vhost, in bindings, as `Trim` counts."""
        topology = self._topologies.get(vhost)
        return 0 if topology is None else topology.size

    def binding_count(self, vhost: str) -> int:
        """Return the number of explicit bindings of the vhost."""
        topology = self._topologies.get(vhost)
        return 0 if topology is None else topology.binding_count

    def bindings(self, vhost: str) -> Iterator[Binding]:
        """All bindings of the vhost, the implicit ones of the default exchange included (amqp-behaviour §3.14)."""
        topology = self._topologies.get(vhost)
        return iter(()) if topology is None else topology.bindings()

    def effective_policy(self, record: QueueRecord | Exchange) -> EffectivePolicy:
        """Return the merged policies that apply to a queue or exchange of the catalogue; `NO_POLICY` when none does."""
        topology = self._topologies.get(record.vhost)
        kind: ResourceKind = "queue" if isinstance(record, QueueRecord) else "exchange"
        return NO_POLICY if topology is None else topology.effective_policy(kind, record.name)

    def queue_policies(self, vhost: str) -> Mapping[str, EffectivePolicy]:
        """Return a copy of the effective policies by queue name, without queues that no policy applies to."""
        topology = self._topologies.get(vhost)
        return {} if topology is None else topology.queue_policies()

    def policy_of_new_queue(self, vhost: str, name: str, queue_type: QueueType) -> EffectivePolicy:
        """Return the policies that would apply to a queue that does not exist yet."""
        topology = self._topologies.get(vhost)
        return NO_POLICY if topology is None else topology.policies.match("queue", name, queue_type)

    # --- nodes --------------------------------------------------------------------------------------------

    @property
    def members(self) -> Mapping[str, ClusterMember]:
        """The nodes of the cluster by name; none in a node without peers."""
        return self._members.by_name

    def member(self, name: str) -> ClusterMember | None:
        """The node of that name."""
        return self._members.by_name.get(name)

    @property
    def next_incarnation(self) -> int:
        """The incarnation that the next node to start gets."""
        return self._members.next_incarnation

    @property
    def member_changes(self) -> int:
        """A counter that rises whenever a node comes, goes, starts, ends, drains or changes its type or address."""
        return self._members.changes

    # --- vhosts, users, permissions, policies, parameters -------------------------------------------------

    def vhost(self, name: str) -> Vhost | None:
        """The vhost of that name."""
        return self._vhosts.get(name)

    def vhosts(self) -> Collection[Vhost]:
        """All vhosts."""
        return self._vhosts.values()

    def vhost_limits(self, name: str) -> VhostLimits:
        """The limits of the vhost."""
        return vhost_limits_from(self.parameter(name, VHOST_LIMITS, VHOST_LIMITS_NAME))

    def user(self, name: str) -> User | None:
        """The user of that name."""
        return self._accounts.users.get(name)

    def users(self) -> Collection[User]:
        """All users."""
        return self._accounts.users.values()

    def permission(self, vhost: str, user: str) -> Permission | None:
        """The user's row for the vhost."""
        return self._accounts.permissions.get((vhost, user))

    def permissions(self) -> Collection[Permission]:
        """All rows of all users."""
        return self._accounts.permissions.values()

    def topic_permission(self, vhost: str, user: str, exchange: str) -> TopicPermission | None:
        """The user's row for the exchange."""
        return self._accounts.topic_permissions.get((vhost, user, exchange))

    def topic_permissions(self) -> Collection[TopicPermission]:
        """All rows of all users."""
        return self._accounts.topic_permissions.values()

    def policies(self, vhost: str, *, operator: bool = False) -> Collection[Policy]:
        """The user policies of the vhost, or its operator policies."""
        topology = self._topologies.get(vhost)
        return () if topology is None else topology.policies.policies(operator=operator)

    def parameter(self, vhost: str, component: str, name: str) -> Json:
        """The value of a runtime parameter; None when unset. Policies of both sorts are in `policies`."""
        return self._parameters.get(vhost, {}).get((component, name))

    def parameters(self, vhost: str) -> Mapping[tuple[str, str], Json]:
        """The runtime parameters of the vhost by component and name, without policies of either sort."""
        return self._parameters.get(vhost, {})

    def global_parameter(self, name: str) -> Json:
        """The value of a parameter of the whole cluster; None when unset."""
        return self._global_parameters.get(name)

    def global_parameters(self) -> Mapping[str, Json]:
        """The parameters of the whole cluster by name."""
        return self._global_parameters

    # --- handlers -----------------------------------------------------------------------------------------

    def _in_vhost(self, handle: Callable[[Topology, Any], object]) -> Callable[[Any], object]:
        """Return a handler that calls `handle` with the topology of the command's vhost; Refused (530) without it."""

        def handler(command: Any) -> object:
            topology = self._topologies.get(command.vhost)
            return _no_such_vhost(command.vhost) if topology is None else handle(topology, command)

        return handler

    def _declare_queue(self, command: commands.DeclareQueue) -> commands.QueueDeclared | Refused:
        topology = self._topologies.get(command.vhost)
        if topology is None:
            return _no_such_vhost(command.vhost)
        if command.name not in topology.queues:
            limits = self.vhost_limits(command.vhost)
            try:
                check_vhost_queues(limits, command.vhost, command.name, len(topology.queues))
            except ProtocolError as full:
                return Refused(full.code, full.explanation)
        return topology.declare_queue(command, self._mirrored.first_view)

    def _declare_delayed(self, command: commands.DeclareDelayed) -> commands.ExchangeDeclared | Refused:
        topology = self._topologies.get(command.vhost)
        if topology is None:
            return _no_such_vhost(command.vhost)
        return topology.declare_delayed(command, self._mirrored.first_view)

    def _put_vhost(self, command: commands.PutVhost) -> bool:
        vhost = Vhost(
            command.name, command.description, command.tags, command.default_queue_type, command.metadata
        )
        is_new = vhost.name not in self._vhosts
        self._vhosts[vhost.name] = vhost
        if is_new:
            self._events.append(VhostCreated(vhost))
            self._topologies[vhost.name] = Topology(
                vhost.name, self._events, command.declared_by, self.plugins.exchange_types
            )
        else:
            self._events.append(VhostUpdated(vhost))
        return is_new

    def _delete_vhost(self, command: commands.DeleteVhost) -> bool:
        if command.name not in self._vhosts:
            return False
        self._topologies.pop(command.name).delete_all()
        self._accounts.forget_vhost(command.name)
        self._parameters.pop(command.name, None)
        del self._vhosts[command.name]
        self._events.append(VhostDeleted(command.name))
        return True

    def _set_permission(self, command: commands.SetPermission) -> bool | Refused:
        if command.vhost not in self._vhosts:
            return _vhost_not_found(command.vhost)
        return self._accounts.set_permission(command)

    def _set_topic_permission(self, command: commands.SetTopicPermission) -> bool | Refused:
        if command.vhost not in self._vhosts:
            return _vhost_not_found(command.vhost)
        return self._accounts.set_topic_permission(command)

    def _set_policy(self, command: commands.SetPolicy) -> bool | Refused:
        value: dict[str, Json] = {
            "pattern": command.pattern,
            "definition": dict(command.definition),
            "priority": command.priority,
            "apply-to": command.apply_to,
        }
        problem = validate_policy(command.name, value, operator=command.operator)
        if problem is not None:
            return Refused(ReplyCode.PRECONDITION_FAILED, problem)
        return self._put_policy(command.vhost, command.name, value, operator=command.operator)

    def _put_policy(self, vhost: str, name: str, value: dict[str, Any], *, operator: bool) -> bool | Refused:
        """Store a policy that has been validated."""
        topology = self._topologies.get(vhost)
        if topology is None:
            return _vhost_not_found(vhost)
        policy = Policy(
            vhost,
            name,
            value["pattern"],
            value["definition"],
            value["priority"],
            value.get("apply-to", "all"),
        )
        return topology.put_policy(policy, operator=operator)

    def _clear_policy(self, command: commands.ClearPolicy) -> bool:
        topology = self._topologies.get(command.vhost)
        return topology is not None and topology.clear_policy(command.name, operator=command.operator)

    def _set_parameter(self, command: commands.SetParameter) -> bool | Refused:
        problem = validate_parameter(command.component, command.name, command.value)
        if problem is not None:
            return Refused(ReplyCode.PRECONDITION_FAILED, problem)
        if command.vhost not in self._vhosts:
            return _vhost_not_found(command.vhost)
        if command.component == OPERATOR_POLICY:
            assert isinstance(command.value, dict)
            return self._put_policy(command.vhost, command.name, command.value, operator=True)
        parameters = self._parameters.setdefault(command.vhost, {})
        key = (command.component, command.name)
        is_new = key not in parameters
        parameters[key] = command.value
        self._events.append(ParameterChanged(command.vhost, *key))
        return is_new

    def _clear_parameter(self, command: commands.ClearParameter) -> bool | Refused:
        if command.component == POLICY:
            return Refused(ReplyCode.PRECONDITION_FAILED, "policies may not be cleared using this method")
        if command.component == OPERATOR_POLICY:
            return self._clear_policy(commands.ClearPolicy(command.vhost, command.name, operator=True))
        key = (command.component, command.name)
        if key not in self._parameters.get(command.vhost, {}):
            return False
        del self._parameters[command.vhost][key]
        self._events.append(ParameterChanged(command.vhost, *key))
        return True

    def _set_global_parameter(self, command: commands.SetGlobalParameter) -> bool:
        is_new = command.name not in self._global_parameters
        self._global_parameters[command.name] = command.value
        self._events.append(ParameterChanged(None, "", command.name))
        return is_new

    def _clear_global_parameter(self, command: commands.ClearGlobalParameter) -> bool:
        if command.name not in self._global_parameters:
            return False
        del self._global_parameters[command.name]
        self._events.append(ParameterChanged(None, "", command.name))
        return True

    def _enable_plugin(self, command: commands.EnablePlugin) -> bool | Refused:
        return self.plugins.enable(command, self._used_types())

    def _disable_plugin(self, command: commands.DisablePlugin) -> bool | Refused:
        return self.plugins.disable(command, self._used_types())

    def _used_types(self) -> dict[str, Exchange]:
        """Return an exchange of each exchange type that is in use."""
        topologies = self._topologies.values()
        return {each.type: each for topology in topologies for each in topology.exchanges.values()}

    def _remove_member(self, command: commands.RemoveMember) -> bool:
        member = self._members.by_name.get(command.name)
        if member is None:
            return False
        if member.is_up:
            self._down(member)
        self._delete(self._mirrored.forget(member.name))
        for topology in self._topologies.values():
            topology.delete_queues_of(member.name, transient_only=False)
        self._members.remove(member.name)
        return True

    def _node_up(self, command: commands.NodeUp) -> int | Refused:
        member = self._members.find(command)
        if isinstance(member, Refused):
            return member
        if member.is_up:
            self._down(member)
        if not self._members.is_any_up:
            for topology in self._topologies.values():
                topology.delete_transient_exchanges()
        return self._members.up(member, command.address)

    def _node_down(self, command: commands.NodeDown) -> bool:
        member = self._members.by_name.get(command.name)
        if member is None or not member.is_up or member.incarnation != command.incarnation:
            return False
        self._down(member, is_clean=command.is_clean)
        return True

    def _down(self, member: ClusterMember, *, is_clean: bool = False) -> None:
        over = self._mirrored.lose(member, is_clean=is_clean)
        self._members.down(member)
        self._delete(over)
        for topology in self._topologies.values():
            topology.delete_queues_of(member.name, transient_only=True)

    def _delete(self, queues: Iterable[QueueRecord]) -> None:
        for queue in queues:
            self._topologies[queue.vhost].delete_queue(
                commands.DeleteQueue(queue.vhost, queue.name, queue.uid)
            )

    def _take_plan_lock(self, command: commands.TakePlanLock) -> PlanLock:
        lock = taken(self.plan_lock, command.plan, command.owner, command.now_ms, command.ttl_ms)
        self.plan_lock = lock
        return lock

    def _release_plan_lock(self, command: commands.ReleasePlanLock) -> PlanLock | None:
        lock = self.plan_lock
        if lock is not None and (lock.plan, lock.owner) == (command.plan, command.owner):
            self.plan_lock = None
        return self.plan_lock

    def _take_plan_step(self, command: commands.TakePlanStep) -> StepOutcome:
        problem = refusal(self.plan_lock, command.plan, command.now_ms)
        if problem is not None:
            return StepOutcome("locked", problem)
        return self._mirrored.take_step(command)

    def _restore_plan_lock(self, command: commands.RestorePlanLock) -> None:
        self.plan_lock = command.lock

    def _renew_leases(self, command: commands.RenewLeases) -> None:
        self._events.append(LeasesRenewed(command.sent))

    def _restore_queue(self, command: commands.RestoreQueue) -> Refused | None:
        topology = self._topologies.get(command.queue.vhost)
        if topology is None:
            return _no_such_vhost(command.queue.vhost)
        topology.restore_queue(command)
        return None

    def _restore_member(self, command: commands.RestoreMember) -> None:
        self._members.by_name[command.member.name] = command.member

    def _restore_incarnations(self, command: commands.RestoreIncarnations) -> None:
        self._members.next_incarnation = command.next
        self._members.changes = command.changes


def _alters_routes(event: Event) -> bool:
    if isinstance(event, ViewChanged):
        # A route knows whether confirms have to wait for copies on other nodes.
        return event.is_move or (event.before.view is None) != (event.after.view is None)
    return not isinstance(event, _ALTERS_NO_ROUTE)


def _no_such_vhost(name: str) -> Refused:
    """Return the refusal for a client's command: the vhost was deleted while it ran, its connection is being closed."""
    return Refused(ReplyCode.NOT_ALLOWED, missing_vhost(name))


def _vhost_not_found(name: str) -> Refused:
    """Return the refusal for an operator's command that names an unknown vhost."""
    return Refused(ReplyCode.NOT_FOUND, f"no vhost '{name}'")
