"""A scene has one `Membership` in virtual time; the test sends the messages of its peers."""

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
    """Return a member, which counts as up if it has an incarnation."""
    return ClusterMember(name, f"{name}:25672", f"id-{name}", "disc", incarnation, is_up and incarnation > 0)


class Scene:
    """The node n1. Its incarnation, once up, is 1; n2 has 2, n3 has 3."""

    def __init__(self, *, booted_s: float = BOOTED_S) -> None:
        self.now = booted_s
        self.node = Membership(SELF, OPTIONS)
        self.beats: list[tuple[str, Heartbeat]] = []
        """The machine has sent these since the last look, each to a node."""

    @classmethod
    def up(cls, *others: str, leader: str | None = "n2", booted_s: float = BOOTED_S) -> "Scene":
        """Bring the node up, with the others up and linked, and optionally with a leader."""
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
        """Advance the time, with a tick at each deadline and heartbeats of living peers. Returns: the outputs."""
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
        """Deliver a peer's heartbeat; its clock is an hour behind, and it follows the leader of n1."""
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
        """Apply a command of the log."""
        self.node.applied(events, self.now)

    def renew(self, *, sent_s: float | None = None, leader: str = "n2", incarnation: int = 1) -> None:
        """Apply the leader's renewal of n1's lease."""
        own = (SELF, incarnation, self.now if sent_s is None else sent_s)
        self.apply(LeasesRenewed(((leader, int(leader[1:]), 7.0), own)))

    def answer(self, outputs: list[Output]) -> None:
        """Apply the commands that n1 submitted."""
        for output in outputs:
            match output:
                case Submit(RenewLeases(sent)):
                    self.apply(LeasesRenewed(sent))
                case Submit(NodeDown(name, incarnation)):
                    self.apply(MemberDown(member(name, incarnation)))
                case _:
                    pass

    def lead(self, seconds: float, *alive: str) -> list[Output]:
        """Advance the time for a leader whose renewals are applied at once."""
        outputs = []
        end_s = self.now + seconds
        while self.now < end_s:
            taken = self.wait(min(OPTIONS.heartbeat_s, end_s - self.now), *alive)
            self.answer([item for item in taken if isinstance(item, Submit) and _is_renewal(item)])
            outputs += taken + self.take()
        return outputs

    def join(self, name: str) -> None:
        """Add a member that is not up."""
        self.apply(MemberPut(member(name)))

    # --- what came of it ---

    def take(self) -> list[Output]:
        """Return the outputs without heartbeats, and forget them."""
        outputs = self.node.take_outputs()
        self.beats = [
            (item.to, decode_heartbeat(item.message)) for item in outputs if isinstance(item, SendHeartbeat)
        ]
        return [item for item in outputs if not isinstance(item, SendHeartbeat)]

    def took(self, *expected: Output) -> None:
        """Check that the outputs are exactly these."""
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
    """Return the outputs of one kind."""
    return [item for item in outputs if isinstance(item, kind)]
