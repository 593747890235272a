"""One `Membership` among peers that a test speaks for, with virtual time."""

from typing import Final, TypeVar

from cluster.membership.heartbeat import Heartbeat, decode_heartbeat, encode_heartbeat
from cluster.membership.membership import Membership
from cluster.membership.options import MembershipOptions
from cluster.membership.outputs import Output, SendHeartbeat, Submit
from node.catalogue.commands import NodeDown, RenewLeases
from node.catalogue.events import Event, LeasesRenewed, MemberDown, MemberPut, MemberUp
from node.catalogue.records import ClusterMember

OutputT = TypeVar("OutputT")

BOOTED_S: Final = 1024.0
OPTIONS: Final = MembershipOptions(lease_s=2.0, heartbeat_s=0.25)
SELF: Final = "n1"


def member(name: str, incarnation: int = 0, *, is_up: bool = True) -> ClusterMember:
    """A member; it counts as up if it has an incarnation."""
    return ClusterMember(name, f"{name}:25672", f"id-{name}", "disc", incarnation, is_up and incarnation > 0)


class Scene:
    """The node n1. Its incarnation, once up, is 1; n2 has 2, n3 has 3."""

    def __init__(self, *, booted_s: float = BOOTED_S) -> None:
        self.now = booted_s
        self.node = Membership(SELF, OPTIONS)
        self.beats: list[tuple[str, Heartbeat]] = []
        """What it sent since the last look, and to whom."""

    @classmethod
    def up(cls, *others: str, leader: str | None = "n2", booted_s: float = BOOTED_S) -> "Scene":
        """It serves, the others are up and linked; there may be a leader."""
        scene = cls(booted_s=booted_s)
        scene.node.members_changed({name: member(name) for name in (SELF, *others)}, scene.now)
        for name in others:
            scene.apply(MemberUp(member(name, int(name[1:]))))
            scene.node.link_up(name, int(name[1:]), scene.now)
        scene.node.leader_changed(leader, scene.now)
        scene.node.majority_changed(True, scene.now)
        scene.node.starting(scene.now)
        scene.apply(MemberUp(member(SELF, 1)))
        scene.node.up(1, scene.now)
        scene.take()
        return scene

    # --- what happens ---

    def wait(self, seconds: float, *alive: str) -> list[Output]:
        """Time goes by, with a tick at each deadline. Those that are alive send heartbeats. What came of it."""
        outputs = []
        end_s = self.now + seconds
        next_s = self.now + OPTIONS.heartbeat_s
        while self.now < end_s:
            self.now = min(end_s, next_s, max(self.now, self.node.next_deadline()))
            if self.now == next_s:
                next_s += OPTIONS.heartbeat_s
                for name in alive:
                    self.hear(name)
            self.node.tick(self.now)
            outputs += self.take()
        return outputs

    def hear(
        self,
        name: str,
        *,
        incarnation: int | None = None,
        leader: str | None = "",
        reachable: tuple[str, ...] = (),
        version: int = 0,
        status: bytes | None = None,
        sent_s: float | None = None,
        lacks_status: bool = False,
    ) -> None:
        """A peer's heartbeat; its clock is an hour behind, and it follows whom n1 follows."""
        if incarnation is None:
            incarnation = int(name[1:])
        heartbeat = Heartbeat(
            incarnation,
            self.now if sent_s is None else sent_s,
            self.node.leader if leader == "" else leader,
            frozenset(reachable),
            version,
            status,
            lacks_status,
        )
        self.node.received(name, encode_heartbeat(heartbeat), self.now)

    def apply(self, *events: Event) -> None:
        """The log brought this."""
        self.node.applied(events, self.now)

    def renew(self, *, sent_s: float | None = None, leader: str = "n2", incarnation: int = 1) -> None:
        """The leader's renewal of n1's lease is applied."""
        own = (SELF, incarnation, self.now if sent_s is None else sent_s)
        self.apply(LeasesRenewed(((leader, int(leader[1:]), 7.0), own)))

    def answer(self, outputs: list[Output]) -> None:
        """The log has what n1 submitted."""
        for output in outputs:
            match output:
                case Submit(RenewLeases(sent)):
                    self.apply(LeasesRenewed(sent))
                case Submit(NodeDown(name, incarnation)):
                    self.apply(MemberDown(member(name, incarnation)))
                case _:
                    pass

    def lead(self, seconds: float, *alive: str) -> list[Output]:
        """Time goes by for a leader whose renewals are applied at once."""
        outputs = []
        end_s = self.now + seconds
        while self.now < end_s:
            taken = self.wait(min(OPTIONS.heartbeat_s, end_s - self.now), *alive)
            self.answer([item for item in taken if isinstance(item, Submit) and _is_renewal(item)])
            outputs += taken + self.take()
        return outputs

    def join(self, name: str) -> None:
        """One more member, not up."""
        self.apply(MemberPut(member(name)))

    # --- what came of it ---

    def take(self) -> list[Output]:
        """What it wants to be done, without heartbeats."""
        outputs = self.node.take_outputs()
        self.beats = [
            (item.to, decode_heartbeat(item.message)) for item in outputs if isinstance(item, SendHeartbeat)
        ]
        return [item for item in outputs if not isinstance(item, SendHeartbeat)]

    def took(self, *expected: Output) -> None:
        """Exactly this came."""
        assert self.take() == [*expected]


def _is_renewal(output: Submit) -> bool:
    return isinstance(output.command, RenewLeases)


def downs(outputs: list[Output]) -> list[NodeDown]:
    """The nodes that were proposed to be declared down."""
    commands = [item.command for item in outputs if isinstance(item, Submit)]
    return [command for command in commands if isinstance(command, NodeDown)]


def renewals(outputs: list[Output]) -> list[RenewLeases]:
    """The renewals that were proposed."""
    commands = [item.command for item in outputs if isinstance(item, Submit)]
    return [command for command in commands if isinstance(command, RenewLeases)]


def of(kind: type[OutputT], outputs: list[Output]) -> list[OutputT]:
    """The outputs of one kind."""
    return [item for item in outputs if isinstance(item, kind)]
