"""The state that a node keeps of another one: its link, lease and status."""

from dataclasses import dataclass

from cluster.membership.heartbeat import REACHABLE_MAX, Heartbeat
from node.catalogue.records import ClusterMember, JsonObject

_NEVER_S = float("-inf")


@dataclass(slots=True)
class KnownNode:
    """Another node. Times are in seconds on this node's clock, except `sent_s`, `renewable_s` and `renewed_s`.

    member: its record in the catalogue, None while it is not in it.
    """

    name: str
    unreachable_since_s: float
    """Since when the peer has had no link, or since it came up if that was later. Meaningless while it is linked."""
    member: ClusterMember | None = None

    # --- the link ---
    is_linked: bool = False
    link_incarnation: int = 0
    """The latest incarnation of the process at the other end, 0 while it has none."""
    gone_incarnation: int = 0
    """The incarnation whose process has provably ended; 0: there is no proof."""
    heard_s: float = _NEVER_S
    """The time at which the peer was heard last, or linked."""
    sent_s: float = 0.0
    """The peer's clock in its last heartbeat. It never goes back while the link lasts."""
    reachable: frozenset[str] = frozenset()
    """The nodes that the peer heard, by its last heartbeat."""
    is_hung: bool = False
    is_refused: bool = False
    """True if a message of the peer was ignored and reported."""

    # --- its lease, as a leader keeps it ---
    followed_s: float = _NEVER_S
    """The time at which the peer's present incarnation last said that it follows us, or came up, if later."""
    renewable_s: float = _NEVER_S
    """The peer's clock then, by which its lease can be renewed."""
    leased_s: float = _NEVER_S
    """The time at which a renewal of the peer's lease was last applied here, by any leader, or it came up, if later."""
    renewed_s: float = _NEVER_S
    """The peer's clock in the heartbeat by which its lease was last proposed to be renewed."""

    # --- statuses ---
    status: JsonObject | None = None
    status_raw: bytes = b""
    status_version: int = 0
    """The version of the peer's status that we have."""
    lacks_status: bool = False
    """True if the peer has a newer status than we have."""
    told_version: int = 0
    """The version of our status that the peer has, as far as we know."""

    is_partitioned: bool = False
    """True if the peer is up and the leader reaches it, but we don't."""

    @property
    def is_up(self) -> bool:
        """True if the peer counts as up in the cluster."""
        return self.member is not None and self.member.is_up

    @property
    def is_reachable(self) -> bool:
        """True if the peer is heard."""
        return self.is_linked and not self.is_hung

    @property
    def knows_whom_it_hears(self) -> bool:
        """True if `reachable` is complete: it was sent over this link, and the list was not too long."""
        return self.sent_s > 0 and len(self.reachable) < REACHABLE_MAX

    def linked(self, incarnation: int, now: float) -> None:
        """Note a new link to the peer: all that belonged to the former one is void."""
        self.is_linked = True
        self.link_incarnation = incarnation
        self.heard_s = now
        self.sent_s = 0.0
        self.reachable = frozenset()
        self.is_hung = self.is_refused = False
        self.status_version = self.told_version = 0
        self.lacks_status = False

    def unlinked(self, *, is_gone: bool, now: float) -> None:
        """Note that the peer's link is down.   is_gone: the process at the other end has ended for sure."""
        if is_gone:
            self.gone_incarnation = max(self.gone_incarnation, self.link_incarnation)
        if self.is_linked:
            self.unreachable_since_s = now
        self.is_linked = self.is_hung = False
        self.reachable = frozenset()

    def came_up(self, now: float) -> None:
        """Note that a new incarnation of the peer counts as up."""
        self.followed_s = self.leased_s = now
        self.renewable_s = self.renewed_s = _NEVER_S
        self.unreachable_since_s = now

    def heard(self, heartbeat: Heartbeat, own_name: str, now: float) -> None:
        """Take the peer's heartbeat, except its status."""
        self.heard_s = now
        self.sent_s = heartbeat.sent_s
        self.reachable = heartbeat.reachable
        self.link_incarnation = max(self.link_incarnation, heartbeat.incarnation)
        if self.gone_incarnation == heartbeat.incarnation:
            self.gone_incarnation = 0  # it isn't gone: its host refused us for some other reason
        member = self.member
        is_current = member is not None and member.is_up and heartbeat.incarnation == member.incarnation
        if is_current and heartbeat.leader == own_name:
            self.followed_s = now
            self.renewable_s = heartbeat.sent_s

    def is_outdated(self, heartbeat: Heartbeat) -> bool:
        """True if the heartbeat is of an incarnation that was declared down, which the peer doesn't know yet."""
        member = self.member
        if member is None or not heartbeat.incarnation:
            return False
        return heartbeat.incarnation < member.incarnation + (not member.is_up)
