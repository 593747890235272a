"""The events of the catalogue: each says what a command changed, in the order of the changes.

The live broker starts, stops and re-tunes its queues by these. Within one command they come bottom up:
the events of bindings before that of their queue or exchange, and the events of further deletions after that.
"""

from dataclasses import dataclass
from typing import TypeAlias

from node.catalogue.records import (
    Binding,
    ClusterMember,
    Exchange,
    Permission,
    QueueRecord,
    TopicPermission,
    User,
    Vhost,
)


@dataclass(frozen=True, slots=True)
class VhostCreated:
    """A new vhost. The event comes before those of its seven exchanges."""

    vhost: Vhost


@dataclass(frozen=True, slots=True)
class VhostUpdated:
    """The description, tags, default queue type or metadata of a vhost changed."""

    vhost: Vhost


@dataclass(frozen=True, slots=True)
class VhostDeleted:
    """A vhost was deleted.

    The event comes after those of its queues and exchanges; its bindings get none of their own.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ExchangeCreated:
    """A new exchange; its effective policy can be asked for."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ExchangeDeleted:
    """An exchange was deleted. Events of its bindings, both ways, have come before."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class QueueCreated:
    """A new queue; its effective policy can be asked for."""

    queue: QueueRecord


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    """A queue was deleted. Events of its bindings have come before."""

    queue: QueueRecord


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """A queue has another view: it was mirrored or unmirrored, or its copies or their parts changed.

    cause: `plan:<plan>:<step>` of a plan's step; empty: none.
    """

    before: QueueRecord
    after: QueueRecord
    cause: str = ""

    @property
    def is_move(self) -> bool:
        """True if the master is another one, or ends or is there again: this concerns the queue's clients."""
        return _mastership(self.before) != _mastership(self.after)


def _mastership(record: QueueRecord) -> tuple[str, int, str]:
    return (record.home, record.mastership, "live" if record.view is None else record.view.state)


@dataclass(frozen=True, slots=True)
class BindingAdded:
    """A new binding."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class BindingRemoved:
    """A binding was removed; the record is the one that `BindingAdded` had."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Queues and exchanges of a vhost have another effective policy; their names."""

    vhost: str
    queues: tuple[str, ...]
    exchanges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParameterChanged:
    """A parameter or a policy was set or cleared.

    vhost: None for a parameter of the whole cluster.   component: empty for such a parameter; for policies `policy` or
        `operator_policy`.
    """

    vhost: str | None
    component: str
    name: str


@dataclass(frozen=True, slots=True)
class UserPut:
    """A user was created, or changed in password, tags or limits."""

    user: User


@dataclass(frozen=True, slots=True)
class UserDeleted:
    """A user and its permissions were deleted; connections of the user must be closed (amqp-behaviour §6.6)."""

    name: str


@dataclass(frozen=True, slots=True)
class PermissionsChanged:
    """A user's row for a vhost was set; None when it was removed."""

    vhost: str
    user: str
    permission: Permission | None


@dataclass(frozen=True, slots=True)
class TopicPermissionsChanged:
    """A user's row for an exchange was set; None when it was removed."""

    vhost: str
    user: str
    exchange: str
    permission: TopicPermission | None


@dataclass(frozen=True, slots=True)
class PluginEnabled:
    """A plug-in was enabled on all nodes, or brings other exchange types than before.

    The event comes before those of exchanges of these types.
    """

    name: str
    exchange_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PluginDisabled:
    """A plug-in was disabled on all nodes; there is no exchange of its types."""

    name: str


@dataclass(frozen=True, slots=True)
class MemberPut:
    """A node joined the cluster, or its address, type or maintenance mode changed."""

    member: ClusterMember


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A node was forgotten. Comes after `MemberDown`, if it was up, and after the deletion of its queues."""

    member: ClusterMember


@dataclass(frozen=True, slots=True)
class MemberUp:
    """A node has started."""

    member: ClusterMember


@dataclass(frozen=True, slots=True)
class MemberDown:
    """A node is down; the record is the last one in which it was up.

    The event comes after the changes of views that this brings, and before the deletion of transient queues.
    """

    member: ClusterMember


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """The leader has received heartbeats of incarnations of nodes, as in `RenewLeases`."""

    sent: tuple[tuple[str, int, float], ...]


Event: TypeAlias = (
    VhostCreated
    | VhostUpdated
    | VhostDeleted
    | ExchangeCreated
    | ExchangeDeleted
    | QueueCreated
    | QueueDeleted
    | ViewChanged
    | BindingAdded
    | BindingRemoved
    | PolicyChanged
    | ParameterChanged
    | UserPut
    | UserDeleted
    | PermissionsChanged
    | TopicPermissionsChanged
    | PluginEnabled
    | PluginDisabled
    | MemberPut
    | MemberRemoved
    | MemberUp
    | MemberDown
    | LeasesRenewed
)
