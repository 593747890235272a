"""The records of the catalogue, one frozen dataclass for each noun.

Records are plain values: they compare by value and are never changed, only replaced. Tables and JSON
objects inside them are dictionaries that must not be written to. Facts that change with each message (how many
messages, which consumers) belong to the live queue, not to the catalogue.

Source: amqp-behaviour §3, §6; management §2.2 (the same nouns as in a definitions document).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from node.amqp.field_table import Table
from node.catalogue.mirrors.views import View

ResourceKind: TypeAlias = Literal["queue", "exchange"]
QueueType: TypeAlias = Literal["classic", "quorum"]
ApplyTo: TypeAlias = Literal["all", "queues", "exchanges"]
MemberType: TypeAlias = Literal["disc", "ram", "witness"]

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = Mapping[str, Json]

DEFAULT_EXCHANGE: Final = ""

PLAIN_EXCHANGE_TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})

EXCHANGE_TYPES: Final = PLAIN_EXCHANGE_TYPES | {
    "x-delayed-message",
    "x-message-deduplication",
    "x-recent-history",
    "x-retained",
}


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host. `default_queue_type` is empty when unset."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str = ""
    metadata: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of one user, cluster-wide. None or a negative number is no limit, 0 allows none (§6.5)."""

    max_connections: int | None = None
    max_channels: int | None = None


@dataclass(frozen=True, slots=True)
class User:
    """A user who may log in with a password unless `password_hash` is empty.

    password_hash: base64 of salt and digest (`node.catalogue.passwords`).   hashing_algorithm: RabbitMQ's name of it.
    """

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...] = ()
    limits: UserLimits = UserLimits()


@dataclass(frozen=True, slots=True)
class Permission:
    """A user's rights in a vhost: three regular expressions over resource names (§6.7)."""

    vhost: str
    user: str
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """A user's rights to publish to and bind from one topic exchange: two expressions over routing keys (§6.8)."""

    vhost: str
    user: str
    exchange: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A user policy or an operator policy: which of the two is said by where it is kept (§6.1)."""

    vhost: str
    name: str
    pattern: str
    definition: JsonObject
    priority: int | float = 0
    apply_to: ApplyTo = "all"


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange. Its effective policy is `Catalogue.effective_policy(exchange)`."""

    vhost: str
    name: str
    type: str
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    declared_by: str = ""
    """The user who declared it; empty: no user, or not known."""


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A queue's declaration. Its effective policy is `Catalogue.effective_policy(queue)`.

    uid: the id of this incarnation: a queue declared again under the same name has another one.
    exclusive_owner: opaque id of the connection that owns an exclusive queue, else None.
    home: the node where the queue lives; with a view that of the master, or of the last one while there is none;
        empty in a broker that has no name for itself.
    view: of a mirrored queue, else None.
    ring_version: the last version of a view that the queue ever had, 0: it had none. Kept when it is mirrored no
        more, so that versions and the ids of members never come again.
    copy: the number of the copy on its home's disk while it is not mirrored (`views.stored_uid`).
    mastership: the number of its master's period; rises when another one takes over, 0 until then.
    placement: nodes that are to have a copy while a plan moves the copies, the master's among them; empty: as its
        policy says.
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
    view: View | None = None
    ring_version: int = 0
    mastership: int = 0
    copy: int = 0
    placement: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue or to another exchange of the same vhost."""

    vhost: str
    source: str
    destination_kind: ResourceKind
    destination: str
    routing_key: str
    arguments: Table = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A node of the cluster.

    address: `host:port` where its peers reach it.   node_id: its data directory's, which tells apart two of one name.
    type: disc nodes and witnesses vote on metadata; a witness has no queues and no clients.
    incarnation: the number of its latest start; unlike any other in the cluster, and rising; 0 before the first.
    is_up: it serves clients, as far as the cluster knows.   is_draining: in maintenance mode.
    """

    name: str
    address: str
    node_id: str
    type: MemberType = "disc"
    incarnation: int = 0
    is_up: bool = False
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class PlanLock:
    """The lock of the plan that may move copies of queues.

    plan: its id.   owner: the name of the one that carries it out.
    since_ms, expires_ms: milliseconds since 1970, by the clocks of the nodes that were asked.
    """

    plan: str
    owner: str
    since_ms: int
    expires_ms: int


def implicit_binding(queue: QueueRecord) -> Binding:
    """The binding to the default exchange that each queue has and cannot lose (§3.14)."""
    return Binding(queue.vhost, DEFAULT_EXCHANGE, "queue", queue.name, queue.name)
