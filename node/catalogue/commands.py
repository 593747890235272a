"""The commands that change the catalogue, one frozen dataclass each.

A command has all that the change depends on: names, salts, hashes and ids that must be random or new are made
by its submitter, so that every node that applies it gets the same catalogue. Commands hold plain values only,
which are written as JSON (`node.catalogue.command_codec`).

`Command[R]` says what applying it gives: an `R`, or a `Refused`.
Source: amqp-behaviour §3, §6, §9.1.
"""

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.catalogue.mirrors.views import View, ViewChange
from node.catalogue.records import (
    ApplyTo,
    ClusterMember,
    Exchange,
    Json,
    JsonObject,
    MemberType,
    PlanLock,
    QueueRecord,
    QueueType,
    ResourceKind,
    UserLimits,
)

PlanAction: TypeAlias = Literal["promote", "add_mirror", "drop_mirror", "wait_synced"]
StepState: TypeAlias = Literal["done", "skipped", "started", "waiting", "stale", "locked", "missing"]

ResultT_co = TypeVar("ResultT_co", covariant=True)


class Command(Generic[ResultT_co]):
    """A change of the catalogue that gives a `ResultT_co` when it is not refused."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing. AMQP answers with `error`, the HTTP API with a status that fits `code`."""

    code: ReplyCode
    text: str

    @property
    def error(self) -> ProtocolError:
        """A new exception to raise or to send."""
        return ProtocolError(self.code, self.text)


@dataclass(frozen=True, slots=True)
class ExchangeDeclared:
    """The exchange that now has the name: the caller compares it with what it asked for unless `created`."""

    exchange: Exchange
    created: bool


@dataclass(frozen=True, slots=True)
class QueueDeclared:
    """The queue that now has the name: the caller compares it with what it asked for unless `created`."""

    queue: QueueRecord
    created: bool


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The result of a step of a plan.

    state: done: it has been made; skipped: there was nothing to do; started: it continues without another command;
        waiting: it cannot be made just now, ask again; stale: a condition of the step does not hold (any more); locked:
        this plan does not have the lock; missing: no such queue. Only "done" means that the view has changed.
    reason: for people; empty with done.
    """

    state: StepState
    reason: str = ""


# --- exchanges, queues, bindings --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclareExchange(Command[ExchangeDeclared]):
    """Create the exchange unless the name is taken. Refused when the vhost is missing or the type unknown."""

    vhost: str
    name: str
    type: str
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    declared_by: str = ""


@dataclass(frozen=True, slots=True)
class DeleteExchange(Command[Exchange | None]):
    """Delete the exchange and every binding of it; gives None when there is none (§3.4).

    Refused (406) when `if_unused` and a binding leaves it. Auto-delete exchanges upstream may go too (§3.5).
    """

    vhost: str
    name: str
    if_unused: bool = False


@dataclass(frozen=True, slots=True)
class DeclareQueue(Command[QueueDeclared]):
    """Create the queue unless the name is taken.

    uid: fresh for each attempt, e.g. 16 random bytes in hexadecimal.
    home: the node where it is to live.
    mirrors: nodes that are to have a copy beside it. Those that are up when the command is applied get one, unless
        the queue is exclusive.
    Refused when the vhost is missing (530) or full (406, §3.7 step 7).
    """

    vhost: str
    name: str
    uid: str
    durable: bool = False
    auto_delete: bool = False
    exclusive_owner: str | None = None
    arguments: Table = field(default_factory=dict)
    type: QueueType = "classic"
    home: str = ""
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclareDelayed(Command[ExchangeDeclared]):
    """Create an exchange, of a delayed one for one, with the queue that belongs to it, unless its name is taken.

    waiting: named by `exchange_queue`. It goes with the exchange. Refused as `DeclareExchange` is.
    """

    vhost: str
    exchange: DeclareExchange
    waiting: DeclareQueue


@dataclass(frozen=True, slots=True)
class DeleteQueue(Command[QueueRecord | None]):
    """Delete the queue and its bindings; gives None when there is none.

    uid: delete only this incarnation. The broker's own deletions (expiry, auto-delete, the owner's end) give it,
        so that they cannot delete a queue that was declared again meanwhile.
    """

    vhost: str
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class Trim(Command[bool]):
    """Remove bindings from a queue or an exchange that is to be deleted, or queues from such a vhost, `limit` at most.

    Gives whether there are more; False when there is no such object.
    kind: the kind of the object.   name: empty for a vhost.   uid: of a queue: only of this incarnation.
    limit: bindings; a queue counts as `topology.QUEUE_COST` of them.
    """

    vhost: str
    kind: Literal["queue", "exchange", "vhost"]
    name: str
    uid: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class Bind(Command[bool]):
    """Add a binding; gives False when it was there (§3.14).

    Refused (404) when an end is missing, the source looked for first.
    """

    vhost: str
    source: str
    destination_kind: ResourceKind
    destination: str
    routing_key: str
    arguments: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unbind(Command[bool]):
    """Remove a binding; gives False when there was none, which is no error (§3.14)."""

    vhost: str
    source: str
    destination_kind: ResourceKind
    destination: str
    routing_key: str
    arguments: Table = field(default_factory=dict)


# --- mirrored queues --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartMirroring(Command[View]):
    """Give a queue that is not mirrored its first view, of its home alone; gives the view.

    Refused (406) when it is mirrored already, exclusive or another one than `uid`, or when its home is down.
    """

    vhost: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ChangeView(Command[View]):
    """Change the view of a mirrored queue; gives the view, for `Unmirror` the last one.

    Refused (406) when the change cannot be made, or not any more: it is harmless to propose one twice or too late.
    """

    vhost: str
    name: str
    uid: str
    change: ViewChange


# --- plans ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakePlanLock(Command[PlanLock]):
    """Take the lock of plans for a plan, or renew it. Gives the lock that holds now: ours, or another's.

    now_ms: milliseconds since 1970 by the clock of the node that is asked.
    """

    plan: str
    owner: str
    now_ms: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleasePlanLock(Command[PlanLock | None]):
    """Release the lock that `TakePlanLock` took. Gives the lock that holds now: None, or another's, which stays."""

    plan: str
    owner: str


@dataclass(frozen=True, slots=True)
class TakePlanStep(Command[StepOutcome]):
    """Make a step of a plan if all its conditions hold when it is applied (spark §3.4).

    plan, step: their ids.   now_ms: as in `TakePlanLock`.   uid: of the queue.
    source: the node whose copy is dropped (drop_mirror).   target: the node that gets a copy, or becomes the master's.
    epoch: `View.since` must be this; None: any.   master: the master must be on this node; empty: anywhere.
    synced: nodes whose copies must be synchronised.   min_synced: how many synchronised copies there must be, the
        master's among them; to drop a copy, without that one, and never fewer than the policy wants.
    """

    plan: str
    step: str
    now_ms: int
    action: PlanAction
    vhost: str
    name: str
    uid: str
    source: str = ""
    target: str = ""
    epoch: int | None = None
    master: str = ""
    synced: tuple[str, ...] = ()
    min_synced: int = 1


# --- vhosts -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutVhost(Command[bool]):
    """Create a vhost with its seven exchanges (§3.2), or replace what describes it; gives True when new.

    declared_by: the user who made a new one, and its exchanges with it; empty: the node did at its first start.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    metadata: JsonObject = field(default_factory=dict)
    declared_by: str = ""


@dataclass(frozen=True, slots=True)
class DeleteVhost(Command[bool]):
    """Delete a vhost and all that is in it; gives False when there is none."""

    name: str


# --- users and permissions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutUser(Command[bool]):
    """Create a user or replace password and tags; gives True when new. `limits` None keeps the old ones."""

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...] = ()
    limits: UserLimits | None = None


@dataclass(frozen=True, slots=True)
class ChangePassword(Command[None]):
    """Replace a user's password. Refused (404) when there is no such user."""

    name: str
    password_hash: str
    hashing_algorithm: str


@dataclass(frozen=True, slots=True)
class SetUserTags(Command[None]):
    """Replace a user's tags. Refused (404) when there is no such user."""

    name: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteUser(Command[bool]):
    """Delete a user and its permissions; gives False when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class SetUserLimits(Command[None]):
    """Replace a user's limits. Refused (404) when there is no such user."""

    name: str
    limits: UserLimits


@dataclass(frozen=True, slots=True)
class SetPermission(Command[bool]):
    """Give a user its row for a vhost; gives True when new.

    Refused (404) when vhost or user is missing, (406) when an expression is invalid.
    """

    vhost: str
    user: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ClearPermission(Command[bool]):
    """Remove a user's row for a vhost; gives False when there is none."""

    vhost: str
    user: str


@dataclass(frozen=True, slots=True)
class SetTopicPermission(Command[bool]):
    """Give a user its row for an exchange; gives True when new. Refused as `SetPermission`."""

    vhost: str
    user: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class ClearTopicPermission(Command[bool]):
    """Remove a user's row for one exchange, or with None all its rows in the vhost; gives whether any was."""

    vhost: str
    user: str
    exchange: str | None = None


# --- policies and parameters ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetPolicy(Command[bool]):
    """Create or replace a policy; gives True when new. Refused (406) with the texts of §6.3."""

    vhost: str
    name: str
    pattern: str
    definition: JsonObject
    priority: int | float = 0
    apply_to: ApplyTo = "all"
    operator: bool = False


@dataclass(frozen=True, slots=True)
class ClearPolicy(Command[bool]):
    """Remove a policy; gives False when there is none."""

    vhost: str
    name: str
    operator: bool = False


@dataclass(frozen=True, slots=True)
class SetParameter(Command[bool]):
    """Set a runtime parameter of a vhost; gives True when new (§6.4).

    The component `operator_policy` sets an operator policy; `policy` is refused: `SetPolicy` is the only way.
    Refused (406) too when the component is unknown or the value invalid.
    """

    vhost: str
    component: str
    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class ClearParameter(Command[bool]):
    """Remove a runtime parameter; gives False when there is none."""

    vhost: str
    component: str
    name: str


@dataclass(frozen=True, slots=True)
class SetGlobalParameter(Command[bool]):
    """Set a parameter of the whole cluster, e.g. `cluster_name`; gives True when new."""

    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class ClearGlobalParameter(Command[bool]):
    """Remove a parameter of the whole cluster; gives False when there is none."""

    name: str


# --- plug-ins ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnablePlugin(Command[bool]):
    """Enable a plug-in on all nodes, or change what it brings; gives False when nothing changes.

    exchange_types: the types that exchanges may have from now on. The submitter has read them from the plug-in, so
        that a node without it applies the command alike.
    Refused (406) when another plug-in brings one of the types, or an exchange is of one that is there no more.
    """

    name: str
    exchange_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DisablePlugin(Command[bool]):
    """Disable a plug-in on all nodes; gives False when it is not enabled.

    Refused (406) while there is an exchange of one of its types.
    """

    name: str


# --- nodes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutMember(Command[bool]):
    """Take a node into the cluster, or change its address or type; gives True when new.

    Refused (406) when another data directory has the name.
    """

    name: str
    address: str
    node_id: str
    type: MemberType = "disc"


@dataclass(frozen=True, slots=True)
class RemoveMember(Command[bool]):
    """Forget a node and delete the queues that live on it; gives False when there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeUp(Command[int]):
    """Count a node as started; gives its new incarnation. A former incarnation that counts as up goes down first.

    Refused when it is no member (404) or another data directory has the name (406).
    """

    name: str
    node_id: str
    address: str


@dataclass(frozen=True, slots=True)
class NodeDown(Command[bool]):
    """Count this incarnation of a node as down; gives False when it does not count as up.

    Its transient queues are deleted unless they are mirrored (§9.1); mirrored queues lose their copies there.
    is_clean: it was stopped and says so itself, so `ha-promote-on-shutdown` counts, else `ha-promote-on-failure`.
    """

    name: str
    incarnation: int
    is_clean: bool = False


@dataclass(frozen=True, slots=True)
class SetDraining(Command[bool]):
    """Put a node into maintenance mode, or take it out; False when there is no such node."""

    name: str
    is_draining: bool


@dataclass(frozen=True, slots=True)
class RenewLeases(Command[None]):
    """Report heartbeats of these incarnations of nodes.

    sent: name, incarnation, and the time on that node's own clock at which it spoke (reliability §4.2).
    """

    sent: tuple[tuple[str, int, float], ...]


@dataclass(frozen=True, slots=True)
class RestoreMember(Command[None]):
    """Put back a node as it was: for snapshots."""

    member: ClusterMember


@dataclass(frozen=True, slots=True)
class RestoreQueue(Command[None]):
    """Put back a queue as it was: for snapshots. Refused (530) when the vhost is missing."""

    queue: QueueRecord


@dataclass(frozen=True, slots=True)
class RestoreIncarnations(Command[None]):
    """Set the number of the next incarnation: for snapshots.   changes: the value of `Members.changes`."""

    next: int
    changes: int = 0


@dataclass(frozen=True, slots=True)
class RestorePlanLock(Command[None]):
    """Put back the lock of the plan that is being carried out: for snapshots."""

    lock: PlanLock


def seed_commands(
    *,
    vhost: str,
    user: str,
    password_hash: str,
    hashing_algorithm: str,
    tags: tuple[str, ...],
    permissions: tuple[str, str, str],
) -> list[Command[object]]:
    """The commands that fill an empty catalogue: the default vhost, its user and the user's row there.

    permissions: the expressions for configure, write and read.
    """
    return [
        PutVhost(vhost, description="Default virtual host"),
        PutUser(user, password_hash, hashing_algorithm, tags),
        SetPermission(vhost, user, *permissions),
    ]
