"""The outputs of `Membership`: actions for its caller, in order."""

from dataclasses import dataclass
from typing import TypeAlias

from node.catalogue.commands import NodeDown, RenewLeases
from node.catalogue.records import JsonObject


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send this heartbeat to a peer, on the control stream. It may get lost when the link goes down."""

    to: str
    message: bytes


@dataclass(frozen=True, slots=True)
class Submit:
    """Propose this command as the leader that this node is; drop it if the node leads no more.

    It must not be handed to another leader, which may have heard of the node meanwhile.
    """

    command: NodeDown | RenewLeases


@dataclass(frozen=True, slots=True)
class Pause:
    """The lease has run out: serve no clients. Raft and the links continue. reason: for the log."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The node has a lease: serve clients. Comes after `Membership.up` too, before which nothing is served."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """This incarnation was declared down: stop serving, if not paused, drop its state and start as a new
    incarnation.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """A member's status changed; None when the member went down."""

    name: str
    status: JsonObject | None


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A member is up, and the leader reaches it, but this node doesn't."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionHealed:
    """The member is reached again, or it is down and so no partition any more (is_down)."""

    name: str
    is_down: bool = False


@dataclass(frozen=True, slots=True)
class Parted:
    """This node, the leader, declares a member down that another one has not heard for long, until they hear each
    other.
    """

    name: str
    other: str


@dataclass(frozen=True, slots=True)
class Hung:
    """The link to a node is up, but the node's loop sends nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """A node that hung is heard again."""

    name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A node's message was ignored. Further ones are ignored silently until its link comes up again.

    text: why, for the log.   name: this node itself if its own status is too large, and the old one stays.
    """

    name: str
    text: str


Output: TypeAlias = (
    SendHeartbeat
    | Submit
    | Pause
    | Resume
    | Rejoin
    | StatusChanged
    | PartitionSeen
    | PartitionHealed
    | Parted
    | Hung
    | Recovered
    | Refused
)
