"""What a command changed in the catalogue, in the order in which it changed.

The live broker starts, stops and re-tunes its queues by these. Within one command they come bottom up:
bindings before the queue or exchange that they belonged to, and what cascades from that afterwards.
"""

from dataclasses import dataclass
from typing import TypeAlias

from node.catalogue.records import (
    Binding,
    Exchange,
    Member,
    Permission,
    QueueRecord,
    TopicPermission,
    User,
    Vhost,
)


@dataclass(frozen=True, slots=True)
class VhostCreated:
    """Comes before the creation of its seven exchanges."""

    vhost: Vhost


@dataclass(frozen=True, slots=True)
class VhostUpdated:
    """What describes it changed."""

    vhost: Vhost


@dataclass(frozen=True, slots=True)
class VhostDeleted:
    """Comes after the deletion of its queues and exchanges; its bindings get no event of their own."""

    name: str


@dataclass(frozen=True, slots=True)
class ExchangeCreated:
    """A new exchange; its effective policy can be asked for."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class ExchangeDeleted:
    """Its bindings, both ways, have gone before it."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class QueueCreated:
    """A new queue; its effective policy can be asked for."""

    queue: QueueRecord


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    """Its bindings have gone before it."""

    queue: QueueRecord


@dataclass(frozen=True, slots=True)
class ViewChanged:
    """A queue has another view: it became a mirrored queue, is one no more, or its copies or their parts changed.

    cause: `plan:<plan>:<step>` of a plan's step; empty: none.
    """

    before: QueueRecord
    after: QueueRecord
    cause: str = ""

    @property
    def is_move(self) -> bool:
        """Whether the master is another one, or begins or ends: what concerns those who use the queue."""
        return _mastership(self.before) != _mastership(self.after)


def _mastership(record: QueueRecord) -> tuple[str, int, str]:
    return (record.home, record.mastership, "live" if record.view is None else record.view.state)


@dataclass(frozen=True, slots=True)
class BindingAdded:
    """A new binding."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class BindingRemoved:
    """The record that `BindingAdded` brought."""

    binding: Binding


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The queues and exchanges, by name, whose effective policy is another one now."""

    vhost: str
    queues: tuple[str, ...]
    exchanges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParameterChanged:
    """A parameter or a policy was set or cleared.

    vhost: None and component: empty for a parameter of the whole cluster. component: of policies `policy` and
        `operator_policy`.
    """

    vhost: str | None
    component: str
    name: str


@dataclass(frozen=True, slots=True)
class UserPut:
    """Created, or changed in password, tags or limits."""

    user: User


@dataclass(frozen=True, slots=True)
class UserDeleted:
    """Its permissions are gone too; connections of the user must be closed (§6.6)."""

    name: str


@dataclass(frozen=True, slots=True)
class PermissionsChanged:
    """The row of a user for a vhost; None when it was removed."""

    vhost: str
    user: str
    permission: Permission | None


@dataclass(frozen=True, slots=True)
class TopicPermissionsChanged:
    """The row of a user for an exchange; None when it was removed."""

    vhost: str
    user: str
    exchange: str
    permission: TopicPermission | None


@dataclass(frozen=True, slots=True)
class MemberPut:
    """A node joined the cluster, or its address, type or maintenance mode changed."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A node was forgotten. Comes after `MemberDown`, if it was up, and after the deletion of its queues."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberUp:
    """A node has started."""

    member: Member


@dataclass(frozen=True, slots=True)
class MemberDown:
    """A node is gone; what it was until then.

    Comes after the changes of views that this brings, and before the deletion of transient queues.
    """

    member: Member


@dataclass(frozen=True, slots=True)
class LeasesRenewed:
    """What `RenewLeases` brought."""

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
    | MemberPut
    | MemberRemoved
    | MemberUp
    | MemberDown
    | LeasesRenewed
)
